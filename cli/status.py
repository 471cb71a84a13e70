"""A single status line on stderr, rewritten in place without escape sequences."""

from __future__ import annotations

import shutil
import time
from types import TracebackType
from unicodedata import east_asian_width

from mlx_diffusiongemma.cli.sanitize import sanitize
from mlx_diffusiongemma.cli.terminal import Notes, Terminal

_PAUSE = 0.1  # seconds between two rewrites


class StatusLine:
    """Shows the latest text of `show` until `clear`. Draws nothing when switched off."""

    def __init__(self, notes: Notes, enabled: bool) -> None:
        self._notes = notes
        self._enabled = enabled
        self._width = 0
        self._last = float("-inf")

    def show(self, text: str) -> None:
        """Rewrites the line, at most every tenth of a second."""
        now = time.monotonic()
        if not self._enabled or now - self._last < _PAUSE:
            return
        self._last = now
        text = _fitted(sanitize(text), _columns() - 3)
        width = _cells(text)
        self._notes.draw("\r" + text + " " * (self._width - width))
        self._width = width

    def clear(self) -> None:
        """Takes the line off the screen."""
        if self._width:
            # Two columns more: where the terminal showed a ^C.
            self._notes.draw("\r" + " " * (self._width + 2) + "\r")
        self._width = 0
        self._last = float("-inf")

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()


def status_line(notes: Notes, terminal: Terminal) -> StatusLine:
    """A status line for a person at a terminal that can go back to the start of a line."""
    return StatusLine(notes, terminal.stderr_tty and not terminal.dumb and not notes.quiet)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _cells(text: str) -> int:
    """Columns of a text: wide characters take two."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _fitted(text: str, columns: int) -> str:
    while text and _cells(text) > columns:
        text = text[:-1]
    return text
