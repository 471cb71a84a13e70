"""Settings every test shares: one thread, no network, Ctrl-C as usual, no skip without a reason.

Fixtures belong to the folders that use them. Warnings are errors through pyproject.toml.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything loads a BLAS: the machine is shared by the test processes.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

# A skip's reason has to begin with one of these, and there may be no more than CAP in a run.
ALLOWED_SKIPS = ("needs Metal", "needs Linux", "needs macOS")
SKIP_CAP = 40

# Only the tests of the live reference may import these at the top of the file.
REFERENCE_PACKAGES = ("torch", "transformers")
_REFERENCE_IMPORT = re.compile(r"^(?:import|from) (?:torch|transformers)\b", re.MULTILINE)

_skips: list[tuple[str, str]] = []


def _wants(config: pytest.Config, marker: str) -> bool:
    """Whether the -m expression selects tests with this marker."""
    expression = str(config.getoption("-m"))
    return re.search(rf"(?<!not )\b{marker}\b", expression) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle what the tests see, and refuse a reference run that has nothing to compare with."""
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    _cut_network(patch)
    _skips.clear()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores Ctrl-C, and the programs under test would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.hasplugin("hypothesispytest"):
        _settle_hypothesis()
    if _wants(config, "reference"):
        missing = [name for name in REFERENCE_PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise pytest.UsageError(
                f"the reference tests need {' and '.join(missing)}: run `make test-reference`."
            )


def _settle_hypothesis() -> None:
    """Set no deadline, as a shared machine is slow at times; CI repeats the same examples."""
    from hypothesis import settings

    settings.register_profile("project", deadline=None, derandomize=os.environ.get("CI") == "true")
    settings.load_profile("project")


def _cut_network(patch: pytest.MonkeyPatch) -> None:
    """Let sockets reach this machine only: anything else fails as if the cable were out."""
    real_connect = socket.socket.connect
    real_getaddrinfo = socket.getaddrinfo

    def is_local(host: Any) -> bool:
        name = host.decode() if isinstance(host, bytes) else host
        return name in (None, "", "localhost", "::1", "0.0.0.0") or name.startswith("127.")

    def refuse(host: Any) -> OSError:
        return OSError(
            errno.ENETUNREACH, f"the tests run without a network, {host!r} was asked for"
        )

    def connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            raise refuse(address[0])
        real_connect(self, address)

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_local(host):
            raise refuse(host)
        return real_getaddrinfo(host, *args, **kwargs)

    patch.setattr(socket.socket, "connect", connect)
    patch.setattr(socket, "getaddrinfo", getaddrinfo)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files that import the reference packages alone in runs that do not ask for them."""
    if collection_path.suffix != ".py" or _wants(config, "reference"):
        return None
    if _REFERENCE_IMPORT.search(collection_path.read_text(encoding="utf-8")):
        return True
    return None


def _reason(longrepr: Any) -> str:
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(reason).removeprefix("Skipped: ")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note every skip and every expected failure."""
    if report.skipped:
        _skips.append(
            (report.nodeid, getattr(report, "wasxfail", None) or _reason(report.longrepr))
        )


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note whole files that skipped themselves."""
    if report.skipped:
        _skips.append((report.nodeid, _reason(report.longrepr)))


def _unwelcome() -> Iterator[str]:
    for nodeid, reason in _skips:
        if not reason.startswith(ALLOWED_SKIPS):
            yield f"{nodeid}: skipped, and {reason!r} is not a reason agreed on"
    if len(_skips) > SKIP_CAP:
        yield f"{len(_skips)} tests were skipped, {SKIP_CAP} is the cap"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped more than was agreed."""
    if not hasattr(session.config, "workerinput") and session.exitstatus == 0 and any(_unwelcome()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which skips failed the run."""
    for line in _unwelcome():
        terminalreporter.write_line(f"SKIP POLICY  {line}", red=True)
