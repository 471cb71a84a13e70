"""What a person sees while an answer forms: nothing, a status line, or the canvas (live.py).

A view writes to stderr only and leaves nothing behind. It never sees the answer's way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlx_diffusiongemma.cli.cells import footer
from mlx_diffusiongemma.cli.status import StatusLine
from mlx_diffusiongemma.cli.terminal import Notes, Terminal

if TYPE_CHECKING:
    from mlx_diffusiongemma.diffusion.events import Event
    from mlx_diffusiongemma.runtime import Runtime

READING = "reading the prompt"


def reading(done: int, total: int) -> str:
    """The line that says how far the prompt is."""
    return f"{READING} · {done}/{total} tokens" if total else READING


class ProgressView:
    """Shows a run's events; this one shows nothing. Others override what they show.

    holds_lines: the view shows unfinished lines itself, so only whole lines may be written under
    it.
    """

    holds_lines = False

    def start(self) -> None:
        """The prompt is being read."""

    def prefill(self, done: int, total: int) -> None:
        """So many of the prompt's tokens are read."""

    def show(self, event: Event) -> None:
        """Takes in one event; never slow."""

    def settle(self, thinking: str, answer: str) -> None:
        """Final text that is not written yet, to be shown before the draft."""

    def pause(self) -> None:
        """Takes everything off the screen, so that text can be written to it."""

    def resume(self) -> None:
        """Draws again, below whatever was written."""

    def close(self) -> None:
        """As pause, for good. May be called twice."""
        self.pause()


class StatusView(ProgressView):
    """One status line: canvas, step, share settled."""

    def __init__(self, line: StatusLine, shares_screen: bool) -> None:
        self._line = line
        self.holds_lines = shares_screen

    def start(self) -> None:
        """Says that the prompt is being read."""
        self._line.show(READING)

    def prefill(self, done: int, total: int) -> None:
        """Says how far the prompt is."""
        self._line.show(reading(done, total))

    def show(self, event: Event) -> None:
        """Shows the latest step."""
        from mlx_diffusiongemma.diffusion.events import Step

        if isinstance(event, Step):
            self._line.show(footer(event))

    def pause(self) -> None:
        """Clears the line."""
        self._line.clear()


def choose_view(wanted: str, terminal: Terminal, notes: Notes, runtime: Runtime) -> ProgressView:
    """The view for `--view wanted` here. A view that cannot be had is announced, not faked."""
    if notes.quiet or wanted == "off":
        return ProgressView()
    if not terminal.interactive:
        visible = terminal.stderr_tty and not terminal.dumb
        if wanted == "plain" and visible:
            return StatusView(StatusLine(notes, True), shares_screen=False)
        if wanted != "auto":
            notes.note(f"--view {wanted} needs a terminal; nothing is shown.")
        return ProgressView()
    if terminal.dumb:
        if wanted != "auto":
            notes.note(f"--view {wanted} needs more than a dumb terminal; nothing is shown.")
        return ProgressView()
    if wanted == "plain" or terminal.no_color:
        if wanted == "live":
            notes.note("NO_COLOR is set; a status line stands in for the live view.")
        return StatusView(StatusLine(notes, True), shares_screen=True)
    from mlx_diffusiongemma.cli.live import LiveView

    return LiveView(runtime.tokenizer, runtime.stop_ids)
