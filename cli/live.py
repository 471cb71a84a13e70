"""The live view: the canvas resolving on the terminal, redrawn in place through rich's Live.

A thread of Live redraws at most 15 times a second from the latest step; the loop only hands steps
over. Everything drawn went through `sanitize` and is rich Text, never markup.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from mlx_diffusiongemma.cli.cells import CellReader, TokenReader, footer
from mlx_diffusiongemma.cli.sanitize import sanitize
from mlx_diffusiongemma.cli.views import ProgressView, reading
from mlx_diffusiongemma.diffusion.events import CanvasDone, Event, Step

FRAMES_PER_SECOND = 15
UNSETTLED = "dim"
THOUGHT = "italic"
THOUGHT_DRAFT = "dim italic"
FOOTER = "dim"


class LiveView(ProgressView):
    """The canvas, its settled text and a footer, on a terminal."""

    holds_lines = True
    begun = False

    def __init__(self, tokenizer: TokenReader, stop_ids: Collection[int]) -> None:
        self._reader = CellReader(tokenizer, stop_ids)
        self._console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._step: Step | None = None
        self._started = time.monotonic()
        self._prefill = (0, 0)
        self._done = 0
        self._thinking = ""
        self._answer = ""

    def start(self) -> None:
        """Draws from now on."""
        self._started = time.monotonic()
        self.resume()

    def prefill(self, done: int, total: int) -> None:
        """Keeps how far the prompt is."""
        self._prefill = (done, total)

    def show(self, event: Event) -> None:
        """Keeps the latest step; the thread draws it when its time comes."""
        if isinstance(event, Step):
            first = self._step is None
            self._step = event
            if first and self._live is not None:
                self._live.refresh()
        elif isinstance(event, CanvasDone):
            self._reader.canvas_done(event.token_ids)
            self._step = None
            self._done = event.canvas

    def settle(self, thinking: str, answer: str) -> None:
        """Final text, drawn plain before the draft."""
        self._thinking, self._answer = thinking, answer

    def pause(self) -> None:
        """Takes the region off the screen and gives the cursor back."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def resume(self) -> None:
        """Draws from the cursor's line on."""
        if self._live is None:
            LiveView.begun = True
            self._live = Live(
                console=self._console,
                get_renderable=self._frame,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start(refresh=True)

    def _frame(self) -> _Frame:
        step = self._step
        text = Text()
        visible = self._console.size.width * self._console.size.height
        text.append(sanitize(self._thinking[-visible:]), THOUGHT)
        text.append(sanitize(self._answer[-visible:]))
        if step is None:
            if self._done:
                return _Frame(text, f"canvas {self._done} is final")
            waited = time.monotonic() - self._started
            return _Frame(text, f"{reading(*self._prefill)} · {waited:.0f} s")
        for cell in self._reader.cells(step):
            if cell.thinking:
                style = THOUGHT if cell.settled else THOUGHT_DRAFT
            else:
                style = "" if cell.settled else UNSETTLED
            text.append(sanitize(cell.text), style)
        return _Frame(text, footer(step))


class _Frame:
    """The last lines of a text that fit the window, and a footer under them."""

    def __init__(self, text: Text, note: str) -> None:
        self._text = text
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # One column stays free: a full line would make some terminals wrap and spoil the redraw.
        width = max(options.max_width - 1, 1)
        rows = max(console.size.height - 2, 1)
        lines: list[Text] = []
        if self._text:
            lines = list(self._text.wrap(console, width, overflow="fold", tab_size=8))[-rows:]
        for line in lines:
            line.rstrip()
            yield line
        note = Text(self._note, FOOTER, no_wrap=True)
        note.truncate(width, overflow="ellipsis")
        yield note


def restore_cursor() -> None:
    """Shows the cursor of a terminal on which a view had begun."""
    if LiveView.begun:
        Console(file=sys.stderr).show_cursor(True)
