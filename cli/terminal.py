"""What the three standard streams are, and writing to them. Knows nothing of models or answers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from mlx_diffusiongemma.cli.sanitize import sanitize
from mlx_diffusiongemma.errors import OutputError


@dataclass(frozen=True)
class Terminal:
    """Facts about the streams, read once per command."""

    stdin_tty: bool
    stdout_tty: bool
    stderr_tty: bool
    dumb: bool
    no_color: bool

    @property
    def can_draw(self) -> bool:
        """Escape sequences on stderr are welcome: colour, cursor movement."""
        return self.stderr_tty and not self.dumb and not self.no_color

    @property
    def interactive(self) -> bool:
        """A person watches: answers and notices go to a terminal."""
        return self.stdout_tty and self.stderr_tty


def _is_tty(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def detect() -> Terminal:
    """Looks at sys.stdin, sys.stdout, sys.stderr, TERM and NO_COLOR."""
    return Terminal(
        stdin_tty=_is_tty(sys.stdin),
        stdout_tty=_is_tty(sys.stdout),
        stderr_tty=_is_tty(sys.stderr),
        dumb=os.environ.get("TERM", "") in ("", "dumb"),
        no_color=bool(os.environ.get("NO_COLOR")),
    )


class AnswerOut:
    """Standard output: the answer and nothing else, UTF-8 in a pipe, filtered on a terminal.

    Text is flushed at once, so that a reader sees each part when it becomes final.
    """

    def __init__(self, stream: TextIO | None, tty: bool) -> None:
        self._stream = stream
        self._tty = tty
        self._last = ""

    def write(self, text: str) -> None:
        """Writes `text`. Raises BrokenPipeError when the reader left, OutputError on a bad disk."""
        if self._tty:
            text = sanitize(text)
        if not text:
            return
        if self._stream is None:
            raise OutputError("Standard output is closed.", "Send the answer to a file or a pipe.")
        self._last = text[-1]
        encoding = self._stream.encoding if self._tty else "utf-8"
        try:
            self._stream.flush()
            self._stream.buffer.write(text.encode(encoding, "replace"))
            self._stream.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutputError(
                f"Writing the answer to standard output failed: {reason}.",
                "Free some space, or send the answer elsewhere.",
            ) from error

    def end_line(self) -> None:
        """Ends the last line if it is still open. Nothing written: nothing added."""
        if self._last not in ("", "\n"):
            self.write("\n")


class Notes:
    """Standard error: everything that is not the answer. `quiet` keeps only what must be said."""

    def __init__(self, stream: TextIO | None, tty: bool, quiet: bool = False) -> None:
        self._stream = stream
        self._tty = tty
        self.quiet = quiet

    def write(self, text: str) -> None:
        """Writes `text` whether quiet or not."""
        self.draw(sanitize(text) if self._tty else text)

    def draw(self, text: str) -> None:
        """Writes our own text, carriage returns included. A dead stderr costs no answer."""
        if self._stream is None:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:
            self._stream = None

    def line(self, text: str) -> None:
        """One line, unless quiet."""
        if not self.quiet:
            self.write(text + "\n")

    def note(self, sentence: str) -> None:
        """A notice, unless quiet."""
        self.line(f"note: {sentence}")


def standard_output(terminal: Terminal) -> AnswerOut:
    """The answer's way out."""
    return AnswerOut(sys.stdout, terminal.stdout_tty)


def standard_error(terminal: Terminal, quiet: bool = False) -> Notes:
    """The notices' way out."""
    return Notes(sys.stderr, terminal.stderr_tty, quiet)
