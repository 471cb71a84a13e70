"""The shared test settings do what they promise: skips, warnings, the network, the reference."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, clean_env

SKIP = 'import pytest\n@pytest.mark.skipif(True, reason="{}")\ndef test_it(): pass\n'
NO_TORCH = """
import importlib.util as util
real = util.find_spec
util.find_spec = lambda name, *a: None if name == "torch" else real(name, *a)
"""


def outcome(
    folder: Path, files: dict[str, str], *arguments: str, prelude: str = ""
) -> tuple[int, str]:
    """Run a suite of these files under our settings: pytest's exit code and what it printed."""
    (folder / "tests").mkdir()
    for name in ("pyproject.toml", "tests/conftest.py"):
        (folder / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    for name, body in files.items():
        (folder / "tests" / f"test_{name}.py").write_text(body, encoding="utf-8")
    code = f"import sys\n{prelude}\nimport pytest\nsys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-p", "no:cacheprovider", "-p", "xdist.plugin", *arguments],
        cwd=folder,
        # Loading hypothesis takes longer than these runs.
        env=clean_env(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_skip_nobody_agreed_to_fails_the_run(tmp_path: Path, workers: str) -> None:
    """Neither a skip, a file that skips itself nor an expected failure is a way to a green run."""
    files = {
        "skip": SKIP.format("did not work today"),
        "file": 'import pytest\npytest.importorskip("no_such_module")\n',
        "expected": "import pytest\n@pytest.mark.xfail(reason='later')\ndef test_it(): assert 0\n",
        "passes": "def test_it(): pass\n",
    }
    code, told = outcome(tmp_path, files, "-n", workers)
    assert code == 1
    policy = [line for line in told.splitlines() if line.startswith("SKIP POLICY")]
    assert [name for name in files if any(f"test_{name}.py" in line for line in policy)] == [
        "skip",
        "file",
        "expected",
    ]


def test_agreed_skips_and_reference_files_pass(tmp_path: Path) -> None:
    """Other hardware is a reason to skip, and a file that imports torch needs no torch."""
    files = {
        "metal": SKIP.format("needs Metal: the kernel itself is run"),
        "live": "import torch\nraise SystemExit(9)\n",
        "passes": "def test_it(): pass\n",
    }
    code, told = outcome(tmp_path, files, prelude=NO_TORCH)
    assert code == 0
    assert "1 passed, 1 skipped" in told


def test_agreed_skips_are_capped_and_warnings_are_errors(tmp_path: Path) -> None:
    """A suite cannot skip its way through, and a warning fails its test."""
    many = SKIP.format("needs Metal").replace("test_it()", "test_it(n)")
    files = {
        "many": many + 'test_it = pytest.mark.parametrize("n", range(41))(test_it)',
        "warning": "import warnings\ndef test_it(): warnings.warn('old')\n",
    }
    code, told = outcome(tmp_path, files)
    assert code == 1
    assert "40 is the cap" in told
    assert "UserWarning: old" in told


def test_reference_run_without_torch_fails(tmp_path: Path) -> None:
    """`-m reference` with nothing to compare with is an error, never a skip."""
    files = {"live": "import pytest\n@pytest.mark.reference\ndef test_it(): pass\n"}
    code, told = outcome(tmp_path, files, "-m", "reference", prelude=NO_TORCH)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "make test-reference" in told
    assert "skipped" not in told


@pytest.mark.parametrize("host", ["example.org", "192.0.2.1"])
def test_network_is_cut(host: str) -> None:
    """Names and addresses outside this machine are unreachable at once."""
    with pytest.raises(OSError, match="without a network"):
        socket.create_connection((host, 80), timeout=5)


def test_ctrl_c_reaches_what_is_under_test() -> None:
    """A run in the background, where the shell ignores Ctrl-C, tests the same thing."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_this_machine_can_be_reached() -> None:
    """A test may talk to a server of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
