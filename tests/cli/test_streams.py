"""Pipes, signals and full disks, on the real entry point in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma.cli.errors import Terminated, terminate_gently
from tests.cli.conftest import command, environment, run_process

LONG: list[dict[str, Any]] = [{"canvases": ["line of text\n"] * 3, "times": 20_000}]
SLOW: list[dict[str, Any]] = [{"canvases": ["Once upon", " a time."], "delay": 0.3, "steps": 5}]
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /dev/full")


def start(answers: list[dict[str, Any]], *args: str, home: Path, **streams: Any) -> Any:
    return subprocess.Popen(
        command(answers, *args),
        stdin=subprocess.DEVNULL,
        env=environment(home),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


def test_a_reader_that_leaves_ends_us_quietly(tmp_path: Path) -> None:
    with start(LONG, "generate", "-m", "x", "-p", "hi", home=tmp_path) as process:
        assert process.stdout.readline() == b"line of text\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


@pytest.mark.parametrize("args", [["--help"], ["generate", "-m", "x", "-p", "hi"]])
def test_a_reader_that_was_never_there(tmp_path: Path, args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with start([{}], *args, home=tmp_path, stdout=writer) as process:
        os.close(writer)
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


@needs_linux
@pytest.mark.parametrize("args", [["generate", "-m", "x", "-p", "hi"], ["chat", "-m", "x"]])
def test_a_full_disk_is_an_output_error(tmp_path: Path, args: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            command([{}], *args),
            input=b"hi\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(tmp_path),
            check=False,
        )
    assert ran.returncode == 6
    lines = ran.stderr.decode().splitlines()
    assert lines[0] == (
        "error: Writing the answer to standard output failed: No space left on device."
    )
    assert len(lines) == 2 and lines[1].startswith("hint: ")


def test_a_closed_standard_output_is_an_output_error(tmp_path: Path) -> None:
    program = command([{}], "generate", "-m", "x", "-p", "hi")
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *program],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        check=False,
    )
    assert ran.returncode == 6
    assert ran.stderr.startswith(b"error: Standard output is closed.\n")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["chat", "-h"], []])
def test_help_needs_a_standard_output_as_well(tmp_path: Path, args: list[str]) -> None:
    for redirection, words in ((">&-", b"is closed"), ("> /dev/full", b"No space left")):
        if "full" in redirection and sys.platform != "linux":
            continue
        ran = subprocess.run(
            ["sh", "-c", f'exec "$@" {redirection}', "sh", *command([{}], *args)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(tmp_path),
            check=False,
        )
        assert (ran.returncode, words in ran.stderr) == (6, True), ran.stderr
        assert b"Internal" not in ran.stderr


def test_closed_streams_lend_their_numbers_to_no_file(tmp_path: Path) -> None:
    """Else a weight file gets 0, which MLX takes for a failure, or 2, and messages as its bytes."""
    code = (
        "import os, sys\n"
        "from mlx_diffusiongemma.cli import app, program\n"
        "program.run = lambda: os.open(os.devnull, os.O_RDONLY)\n"
        "app.main()\n"
    )
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code],
        env=environment(tmp_path),
        check=False,
    )
    assert ran.returncode > 2


@needs_linux
def test_a_dead_standard_error_does_not_cost_the_answer(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            command([{}], "generate", "-m", "x", "-p", "hi", "--stats", "--view", "live"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=full,
            env=environment(tmp_path),
            check=False,
        )
    assert (ran.returncode, ran.stdout) == (0, b"The answer.\n")


@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_signals_keep_what_is_final(tmp_path: Path, sent: int, code: int, stream: str) -> None:
    answers = [{"canvases": ["Once upon", " a time."], "delay": 0.5, "steps": 4}]
    process = start(answers, "generate", "-m", "x", "-p", "hi", stream, home=tmp_path)
    if stream == "--stream":
        assert process.stdout.read(9) == b"Once upon"
    else:
        # No sign of life can be waited for: nothing may be printed before the end.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3.5)
    process.send_signal(sent)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    if stream == "--stream":
        assert out == b"\n"
    assert err == b""


def test_a_signal_while_json_is_due_prints_nothing(tmp_path: Path) -> None:
    process = start(SLOW, "generate", "-m", "x", "-p", "hi", "--json", home=tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize(
    ("view", "extra"),
    [("auto", {}), ("live", {"TERM": "xterm-256color", "FORCE_COLOR": "1"}), ("plain", {})],
)
def test_no_escape_byte_enters_a_pipe(tmp_path: Path, view: str, extra: dict[str, str]) -> None:
    ran = run_process(
        [{"canvases": ["Once upon\n", " a time."]}],
        *["generate", "-m", "x", "-p", "hi", "--stats", "--view", view],
        home=tmp_path,
        env=extra,
    )
    assert ran.returncode == 0
    assert ran.stdout == b"Once upon\n a time.\n"
    assert b"\x1b" not in ran.stderr and b"\r" not in ran.stderr


@pytest.mark.parametrize(
    "extra", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}]
)
def test_a_pipe_is_utf8_in_any_locale(tmp_path: Path, extra: dict[str, str]) -> None:
    ran = run_process(
        [{"canvases": ["caf\u00e9 \U0001f600"]}],
        *["generate", "-m", "caf\u00e9", "-p", "hi"],
        home=tmp_path,
        env=extra,
    )
    assert (ran.returncode, ran.stdout.decode(), ran.stderr) == (0, "caf\u00e9 \U0001f600\n", b"")


def test_nohup_is_honoured_and_only_the_first_signal_counts() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(Terminated) as caught, terminate_gently():
            os.kill(os.getpid(), signal.SIGHUP)
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # while cleaning up
                cleaned = True
        assert caught.value.exit_code == 143
        assert cleaned
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_while_the_program_is_still_being_loaded(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from mlx_diffusiongemma.cli import app\n"
        "assert 'typer' not in sys.modules\n"
        "class Stop:\n"
        "    def find_spec(self, *args): raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "app.main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")
