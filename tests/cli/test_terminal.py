"""The live view and its stand-ins on a pty: final screens, cursor, signals, resizing."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.cli.conftest import command, environment
from tests.cli.fake_runtime import Answer
from tests.cli.screens import Screen, drawn

ASK = ("generate", "-m", "x", "-p", "hi")
CODE = "def add(a, b):\n    if a:\n        return a + b\n\n    return b"
WIDE = "\ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e \U0001f600 " * 12
STORY = "Once upon a time there was a small fox named Ann who lived in a forest. " * 12
PAIR: list[dict[str, Any]] = [{"canvases": ["one\ntwo", " three"], "delay": 0.1}]


def answer(*canvases: str, delay: float = 0.05, **more: Any) -> list[Answer]:
    return [Answer(canvases, delay=delay, steps=4, **more)]


@pytest.mark.parametrize(
    ("canvases", "columns", "lines"),
    [
        ((CODE,), 80, 24),
        ((CODE + "\n", "# the end"), 20, 6),
        ((WIDE,), 80, 24),
        ((WIDE,), 20, 6),
        ((STORY, STORY), 80, 24),
        ((STORY, STORY), 20, 6),
        (("tab\there", "\n\n  x"), 80, 24),
    ],
)
def test_the_final_screen_is_the_answer(
    canvases: tuple[str, ...], columns: int, lines: int
) -> None:
    with Screen(answer(*canvases), *ASK, columns=columns, lines=lines) as screen:
        screen.until("canvas 1 · step"[:columns])
        assert not screen.shows_cursor()
        assert screen.finish() == 0
        expected = drawn("".join(canvases) + "\n", columns, lines)
        assert screen.everything() == expected
        assert screen.shows_cursor()
        assert screen.cooked_at_end
        assert screen.column == 0


def test_the_draft_is_dim_until_it_settles() -> None:
    with Screen(answer("Once upon a time", delay=0.3), *ASK) as screen:
        screen.until("settled")
        assert b"\x1b[2m" in screen.raw
        assert screen.finish() == 0
        assert screen.text() == "Once upon a time"


def test_markup_and_escapes_are_only_text() -> None:
    text = "[red]a[/red] :smile: \x1b[2J\x07\x9b31m\u202eb"
    with Screen(answer(text), *ASK) as screen:
        assert screen.finish() == 0
        assert screen.text() == "[red]a[/red] :smile: [2J31mb"


def test_thoughts_are_seen_forming_but_not_left_behind() -> None:
    text = "<|channel>thought\nI must add.\n<channel|>It is 4."
    with Screen(answer(text, delay=0.3), *ASK) as screen:
        screen.until("I must add.")
        assert "thought" not in screen.text().replace("canvas", "")
        assert screen.finish() == 0
        assert screen.text() == "It is 4."


def test_thoughts_stay_when_asked_for() -> None:
    canvases = ("<|channel>thought\nI must", " add.\n<channel|>It is 4.")
    with Screen(answer(*canvases), *ASK, "--show-thinking") as screen:
        assert screen.finish() == 0
        assert screen.text() == "[thinking]\nI must add.\n[/thinking]\nIt is 4."


def test_whole_lines_are_printed_as_soon_as_they_are_final() -> None:
    story = answer("one\ntwo\nthree", " and four", delay=0.5)
    with Screen(story, *ASK, lines=6) as screen:
        screen.until("canvas 2 · step 1")
        assert screen.text().startswith("one\ntwo\nthree and four\ncanvas 2")
        assert screen.finish() == 0
        assert screen.text() == "one\ntwo\nthree and four"


@pytest.mark.parametrize(("columns", "lines"), [(20, 6), (40, 12), (100, 30)])
def test_resizing_leaves_the_answer_whole(columns: int, lines: int) -> None:
    text = "Once upon a time there was a fox. "
    with Screen(answer(text, "The end.", delay=0.2), *ASK) as screen:
        screen.until("canvas 1 · step 2")
        screen.resize(columns, lines)
        screen.until("canvas 2")
        assert screen.finish() == 0
        assert screen.everything().endswith(drawn(text + "The end.\n", columns, lines))
        assert screen.shows_cursor()


@pytest.mark.parametrize("how", ["key", "SIGINT", "SIGTERM"])
def test_stopping_restores_the_terminal(how: str) -> None:
    story = answer("one\ntwo", " and never", delay=0.4)
    with Screen(story, *ASK) as screen:
        screen.until("canvas 2 · step 1")
        if how == "key":
            screen.send("\x03")
        else:
            screen.kill(getattr(signal, how))
        assert screen.finish() == (143 if how == "SIGTERM" else 130)
        assert screen.shows_cursor()
        assert screen.cooked_at_end
        stopped = "" if how == "SIGTERM" else "\nstopped"
        assert screen.text() == "one\ntwo" + stopped


@pytest.mark.parametrize(
    ("extra", "args"),
    [
        ({"TERM": "dumb"}, ()),
        ({"NO_COLOR": "1"}, ()),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, ()),
        ({"NO_COLOR": "1"}, ("--view", "live")),
        ({"TERM": "dumb"}, ("--view", "live")),
        ({}, ("--view", "off")),
        ({}, ("--view", "plain")),
        ({}, ("-q",)),
    ],
)
def test_terminals_that_get_no_escapes(extra: dict[str, str], args: tuple[str, ...]) -> None:
    with Screen(answer("one\ntwo", " three"), *ASK, *args, env=extra) as screen:
        assert screen.finish() == 0
        assert b"\x1b" not in screen.raw
        lines = [line for line in screen.text().splitlines() if not line.startswith("note: ")]
        assert lines == ["one", "two three"]
        assert screen.text().count("note: ") == ("live" in args)


@pytest.mark.parametrize(
    ("extra", "args"), [({}, ("--view", "plain")), ({"NO_COLOR": "1"}, ())], ids=["plain", "colour"]
)
def test_the_status_line_counts_steps(extra: dict[str, str], args: tuple[str, ...]) -> None:
    story = answer("one\ntwo", " three", delay=0.3)
    with Screen(story, *ASK, *args, env=extra) as screen:
        screen.until("canvas 1 · step 2/48 · 50 % settled")
        screen.until("one\ncanvas 2 · step 1")
        assert screen.finish() == 0
        assert screen.text() == "one\ntwo three"


def test_no_prompt_on_a_terminal_is_a_usage_error() -> None:
    with Screen([Answer()], "generate", "-m", "x") as screen:
        assert screen.finish() == 2
        assert screen.text().startswith("error: There is no prompt.\nhint: ")


def test_a_dash_reads_the_terminal() -> None:
    with Screen([Answer()], "generate", "-m", "x", "-p", "-", "--view", "off") as screen:
        screen.send("hi\n\x04")
        assert screen.finish() == 0
        assert screen.text() == "hi\nThe answer."


def test_the_view_never_touches_standard_output(tmp_path: Path) -> None:
    """Both streams are terminals, but two of them: one must carry the answer alone."""
    out_master, out_slave = pty.openpty()
    err_master, err_slave = pty.openpty()
    subprocess.run(
        command(PAIR, *ASK),
        stdin=subprocess.DEVNULL,
        stdout=out_slave,
        stderr=err_slave,
        env=environment(tmp_path, TERM="xterm-256color"),
        timeout=60,
        check=True,
    )
    assert written(out_master, out_slave) == b"one\r\ntwo three\r\n"
    assert b"settled" in written(err_master, err_slave)


def test_a_terminal_on_standard_error_alone_stays_silent(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    ran = subprocess.run(
        command(PAIR, *ASK),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=environment(tmp_path, TERM="xterm-256color"),
        timeout=60,
        check=True,
    )
    assert ran.stdout == b"one\ntwo three\n"
    assert written(master, slave).replace(b"loading x", b"").strip(b"\r ") == b""


def written(master: int, slave: int) -> bytes:
    """Everything that was written to a terminal nobody uses any more."""
    os.close(slave)
    data = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux, at the end
            part = b""
        if not part:
            os.close(master)
            return data
        data += part


def test_the_whole_program_in_a_process_of_its_own(tmp_path: Path) -> None:
    """From its start to the interpreter's end, typed at like a person would."""
    program, *rest = command([{"canvases": ["Hello!"]}], "chat", "-m", "x")
    env = environment(tmp_path, TERM="xterm-256color", PROMPT_TOOLKIT_NO_CPR="1")
    child = pexpect.spawn(program, rest, env=env, dimensions=(24, 80), timeout=60)
    child.expect(">>>")
    child.send("hi\r")
    child.expect("Hello!")
    child.expect(">>>")
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert b"Traceback" not in child.before
