"""A terminal for tests: the program in a forked child on a pty, what it writes drawn by pyte.

The child is a fork of the test process with everything imported, so a screen costs little. That
the program starts, ends and flushes well on its own is for test_streams.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyte

import mlx_diffusiongemma.cli.live  # noqa: F401 - imported once here, not in every child
from mlx_diffusiongemma.cli import app, session
from tests.cli.fake_runtime import Answer, FakeRuntime

PATIENCE = 40.0


def _become_program(runtime: Any, args: Sequence[str], variables: dict[str, str]) -> NoReturn:
    """What the child does instead of going on with the tests."""
    code = 70
    try:
        os.environ.update(variables)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        session.open_runtime = lambda model, revision, dtype: runtime
        sys.argv = ["dgemma", *args]
        app.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 71
    finally:
        os._exit(code)


class Screen:
    """The program on a terminal of `columns` x `lines`; `raw` is every byte it wrote."""

    def __init__(
        self,
        answers: list[Answer],
        *args: str,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
    ) -> None:
        variables = {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})}
        self.raw = b""
        self.cooked_at_end = False
        self._screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._code: int | None = None
        ready, go = os.pipe()
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            os.read(ready, 1)  # the size is set first
            _become_program(FakeRuntime(answers), args, variables)
        self._set_size(columns, lines)
        os.write(go, b"g")
        os.close(ready)
        os.close(go)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *details: object) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._master)

    def pump(self, seconds: float) -> bool:
        """Draws what arrives within `seconds`; False at the end of the program."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                continue
            with contextlib.suppress(termios.error):
                modes = termios.tcgetattr(self._master)[3]
                wanted = termios.ECHO | termios.ICANON | termios.ISIG
                self.cooked_at_end = modes & wanted == wanted
            try:
                data = os.read(self._master, 65536)
            except OSError:  # Linux: the other side is closed
                return False
            if not data:
                return False
            self.raw += data
            self._stream.feed(data)
        return True

    def until(self, text: str) -> None:
        """Draws until `text` is on the screen."""
        end = time.monotonic() + PATIENCE
        while text not in self.text():
            assert time.monotonic() < end, f"{text!r} never came:\n{self.text()}"
            assert self.pump(0.02) or text in self.text(), f"ended without {text!r}:\n{self.text()}"

    def until_prompt(self) -> None:
        """Draws until the chat waits for a line: keys sent before that may be lost."""
        end = time.monotonic() + PATIENCE
        while not self.text().rstrip().endswith(">>>"):
            assert time.monotonic() < end, f"no prompt:\n{self.text()}"
            assert self.pump(0.02), f"ended without a prompt:\n{self.text()}"

    def finish(self) -> int:
        """Draws until the program ends; its exit code."""
        end = time.monotonic() + PATIENCE
        while self.pump(0.1):
            assert time.monotonic() < end, f"does not end:\n{self.text()}"
        self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def kill(self, number: int) -> None:
        os.kill(self._pid, number)

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        self._set_size(columns, lines)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def text(self) -> str:
        """The screen, without blank ends."""
        lines = [line.rstrip() for line in self._screen.display]
        return "\n".join(lines).rstrip("\n")

    def everything(self) -> str:
        """What scrolled off, then the screen."""
        return everything(self._screen)

    def shows_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    @property
    def column(self) -> int:
        return int(self._screen.cursor.x)


def everything(screen: Any) -> str:
    """What scrolled off a pyte screen and what is on it."""
    columns = range(screen.columns)
    gone = ["".join(row[column].data for column in columns).rstrip() for row in screen.history.top]
    shown = [line.rstrip() for line in screen.display]
    return "\n".join([*gone, *shown]).rstrip("\n")


def drawn(text: str, columns: int, lines: int) -> str:
    """How a terminal shows `text`, the part that scrolled off included."""
    screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=0.5)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    return everything(screen)
