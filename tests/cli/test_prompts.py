"""Where the prompt comes from, and the rules for text from standard input."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_diffusiongemma.cli.prompts import decode_input
from mlx_diffusiongemma.errors import UsageError
from tests.cli.conftest import Ran, command, environment, run_process
from tests.cli.fake_runtime import FakeRuntime


@pytest.mark.parametrize(
    ("argument", "stdin", "prompt"),
    [
        ("hi", "", "hi"),
        (None, "hi\n", "hi"),
        ("-", "hi\n", "hi"),
        ("question", "text\n", "text\n\nquestion"),
        ("question", " \n\n", "question"),
        ("question", "text", "text\n\nquestion"),
        ("", "text\n", "text"),
        (r"a\nb", "", r"a\nb"),
        ("  spaced ", "", "  spaced "),
        (None, "two\n\n", "two\n"),
        (None, "\n\n  indented\n", "\n\n  indented"),
        (None, "\ufeffbom\r\nline\r\n", "bom\nline"),
        (None, "a\rb", "a\rb"),
        (None, "caf\u00e9 \U0001f600\x00", "caf\u00e9 \U0001f600\x00"),
    ],
)
def test_prompt(
    cli: Callable[..., Ran],
    runtime: FakeRuntime,
    argument: str | None,
    stdin: str,
    prompt: str,
) -> None:
    args = [] if argument is None else ["-p", argument]
    assert cli("generate", "-m", "x", *args, stdin=stdin.encode()).code == 0
    assert runtime.calls[0][0] == prompt


@pytest.mark.parametrize("argument", [None, "-", "", "  "])
@pytest.mark.parametrize("stdin", ["", "\n", " \t\r\n "])
def test_an_empty_prompt_is_refused_before_loading(
    cli: Callable[..., Ran], runtime: FakeRuntime, argument: str | None, stdin: str
) -> None:
    args = [] if argument is None else ["-p", argument]
    ran = cli("generate", "-m", "x", *args, stdin=stdin)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0] == "error: The prompt is empty."
    assert ran.err.splitlines()[1].startswith("hint: ")
    assert not runtime.opened


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"ab\xff", 2), (b"\xef\xbb\xbfab\xff", 5), (b"\xff\xfeh\x00", 0), (b"caf\xc3", 3)],
)
def test_bytes_that_are_not_utf8_are_named(
    cli: Callable[..., Ran], runtime: FakeRuntime, data: bytes, offset: int
) -> None:
    ran = cli("generate", "-m", "x", stdin=data)
    assert ran.code == 2
    assert f"not UTF-8 text: byte {offset} (0x{data[offset]:02x}) is invalid." in ran.err
    assert not runtime.opened


def test_decode_input_drops_one_newline_only() -> None:
    assert decode_input(b"a\n\n") == "a\n"
    with pytest.raises(UsageError, match="byte 0"):
        decode_input(b"\x80")


def test_long_text_comes_through_whole(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    text = "line of a long file\n" * 160_000
    assert cli("generate", "-m", "x", stdin=text).code == 0
    assert runtime.calls[0][0] == text[:-1]


def test_an_argument_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    program = command([{}], "generate", "-m", "x", "-p")
    ran = subprocess.run(
        [*(part.encode() for part in program), b"ab\xff"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=environment(tmp_path),
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"error: The text of -p is not UTF-8: byte 2 is invalid.\n")


def test_dev_null_is_no_text(tmp_path: Path) -> None:
    ran = run_process(
        [{}], "generate", "-m", "x", "-p", "hi", home=tmp_path, stdin=subprocess.DEVNULL
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"The answer.\n", b"")


def test_empty_input_fails_fast(tmp_path: Path) -> None:
    start = time.monotonic()
    ran = run_process([{}], "generate", "-m", "x", home=tmp_path, stdin=subprocess.DEVNULL)
    assert ran.returncode == 2
    assert time.monotonic() - start < 5


def test_a_closed_standard_input_is_no_text(tmp_path: Path) -> None:
    program = command([{}], "generate", "-m", "x", "-p", "hi")
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *program],
        capture_output=True,
        env=environment(tmp_path),
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, b"The answer.\n")


def test_a_silent_pipe_is_waited_for_and_explained(tmp_path: Path) -> None:
    """An inherited open pipe is read to its end: text that comes late must not be lost."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        command([{}], "generate", "-m", "x", "-p", "hi"),
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    os.close(reader)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said.startswith(b"note: reading the prompt from standard input until it ends")
    assert process.poll() is None
    os.write(writer, b"late text")
    os.close(writer)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"The answer.\n", b"")
