"""Where a run's events go: the answer to stdout, thoughts to stderr, steps to the view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from mlx_diffusiongemma.cli.terminal import AnswerOut, Notes
from mlx_diffusiongemma.cli.views import ProgressView
from mlx_diffusiongemma.errors import OutputError

if TYPE_CHECKING:
    from mlx_diffusiongemma.diffusion.events import Event
    from mlx_diffusiongemma.results import Result
    from mlx_diffusiongemma.runtime import Runtime


class AnswerSink:
    """Takes the events of one answer.

    out: the answer's way out, None to collect only. thoughts: where thinking is printed, None to
    keep it back. stream: print each part when it becomes final, or all of it at the end. A view
    that shares the screen gets unfinished lines to show; they are printed once they are whole.
    """

    def __init__(
        self,
        out: AnswerOut | None,
        view: ProgressView,
        *,
        thoughts: Notes | None = None,
        stream: bool = True,
    ) -> None:
        self._out = out
        self._view = view
        self._thoughts = thoughts
        self._stream = stream
        self._written = 0
        self._told = False
        self.text = ""
        self.thinking = ""

    def feed(self, event: Event) -> None:
        """Takes in one event."""
        from mlx_diffusiongemma.diffusion.events import CanvasDone, Finished

        self._view.show(event)
        if not isinstance(event, CanvasDone | Finished):
            return
        self.text += event.text
        self.thinking += event.thinking
        if isinstance(event, Finished):
            self.end()
            return
        ready = self._ready()
        if ready > self._written or (self.text and self._has_untold_thoughts()):
            self._view.pause()
            self._print(ready)
            self._settle()
            self._view.resume()
        self._settle()

    def end(self) -> None:
        """No more events: prints what is final and not printed yet, and ends the last line."""
        self._view.close()
        self._print(len(self.text))
        if self._out is not None:
            self._out.end_line()

    def _settle(self) -> None:
        untold = self.thinking if self._has_untold_thoughts() else ""
        self._view.settle(untold, self.text[self._written :])

    def _ready(self) -> int:
        """How much of the text may be printed now."""
        if not self._stream or self._out is None:
            return self._written
        if self._view.holds_lines:
            return max(self._written, self.text.rfind("\n") + 1)
        return len(self.text)

    def _has_untold_thoughts(self) -> bool:
        return self._thoughts is not None and not self._told and bool(self.thinking.strip())

    def _print(self, upto: int) -> None:
        if self._has_untold_thoughts() and self._thoughts is not None:
            self._told = True
            self._thoughts.write(f"[thinking]\n{self.thinking.strip()}\n[/thinking]\n")
        # Counted before it is written: when stopped in the writing, it must not come twice.
        part, self._written = self.text[self._written : upto], upto
        if self._out is not None:
            self._out.write(part)


def run_answer(
    runtime: Runtime,
    prompt: str | Sequence[Mapping[str, Any]],
    sink: AnswerSink,
    view: ProgressView,
    keywords: Mapping[str, Any],
) -> Result:
    """Streams one answer into `sink`.

    When the run is stopped half-way (Ctrl-C, SIGTERM, an error), what was final by then is printed
    and the exception goes on; the view is off the screen in any case.
    """
    prefill: Callable[[int, int], None] = view.prefill
    try:
        view.start()
        stream = runtime.stream(prompt, on_prefill=prefill, **keywords)
        with closing(stream):
            for event in stream:
                sink.feed(event)
        return stream.result
    except (BrokenPipeError, OutputError):
        raise
    except BaseException:
        sink.end()
        raise
    finally:
        view.close()
