"""`dgemma demo`: the bundled tiny model through everything, without a network."""

from __future__ import annotations

import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlx_diffusiongemma.cli import options, session, terminal
from mlx_diffusiongemma.cli.inspect import describe, size
from mlx_diffusiongemma.cli.inspection import inspect_folder
from mlx_diffusiongemma.cli.render import AnswerSink, run_answer
from mlx_diffusiongemma.cli.terminal import AnswerOut, Notes, Terminal
from mlx_diffusiongemma.cli.views import choose_view
from mlx_diffusiongemma.errors import DiffusionGemmaError

if TYPE_CHECKING:
    from mlx_diffusiongemma.results import Result
    from mlx_diffusiongemma.runtime import Runtime

EXAMPLES = """\
Examples:
  dgemma demo
  dgemma demo --fast
"""
SEED = 1
PACE = 0.12  # seconds a step stays on a terminal, so that it can be seen


@dataclass(frozen=True)
class Question:
    """A prompt and a test of the answer (None: any text will do)."""

    prompt: str
    expected: Callable[[str], bool]


def _is(answer: str) -> Callable[[str], bool]:
    return lambda text: text.strip() == answer


def _is_story(text: str) -> bool:
    return text.startswith("Once upon a time") and text.rstrip().endswith("The end.")


QUESTIONS = (
    Question("What is the capital of Italy?", _is("The capital of Italy is Rome.")),
    Question(
        "Extract JSON: Ben is 34 years old and lives in Rome.",
        _is('{"name": "Ben", "age": 34, "city": "Rome"}'),
    ),
    Question("Reverse: sun cat moon", _is("moon cat sun")),
    Question("Tell me a story about a fox.", _is_story),
)
FAST = (QUESTIONS[0], QUESTIONS[3])
CHAT = (
    Question("Hello!", _is("Hello! How can I help you?")),
    Question("Who are you?", _is("I am a tiny DiffusionGemma model.")),
)


@dataclass
class Seen:
    """What the demo has counted."""

    results: list[Result] = field(default_factory=list)
    wrong: int = 0

    def line(self) -> str:
        """All answers in one line."""
        steps = [step for result in self.results for step in result.stats.steps]
        tokens = sum(result.stats.tokens for result in self.results)
        mean = sum(steps) / max(len(steps), 1)
        return (
            f"{len(self.results)} answers, {tokens} tokens, {len(steps)} canvases,"
            f" {mean:.1f} steps per canvas, {tokens / max(sum(steps), 1):.1f} tokens per step"
        )


def demo(
    fast: Annotated[
        bool, typer.Option("--fast", help="Fewer prompts, no pauses on a terminal.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """See the bundled tiny model at work, offline.

    It is inspected, converted, asked a few questions and talked with.
    """
    from mlx_diffusiongemma.checkpoint.hub import resolve
    from mlx_diffusiongemma.convert import convert_checkpoint

    streams = terminal.detect()
    show = Show(streams, pace=0.0 if fast else PACE)
    start = time.perf_counter()
    show.heading("The bundled model")
    report, problem = inspect_folder(resolve("demo", None), "demo")
    if problem is not None:
        raise problem
    show.lines([line for line in describe(report) if not line.startswith(_LEFT_OUT)])
    with tempfile.TemporaryDirectory(prefix="dgemma-demo-") as folder:
        show.heading("Convert: experts to 4 bits, the sensitive parts to 8")
        done = convert_checkpoint("demo", Path(folder) / "converted")
        show.lines(
            [
                f"{size(done.bytes_in)} became {size(done.bytes_out)},"
                f" {done.bits_per_weight:.2f} bits a weight, in {done.seconds:.1f} s"
            ]
        )
        runtime = session.open_runtime(str(done.output), None, None)
        show.heading("Generate")
        for question in FAST if fast else QUESTIONS:
            show.answer(runtime, question, question.prompt)
        show.heading("Chat: the second question is asked with the first in view")
        messages: list[dict[str, Any]] = []
        for question in CHAT:
            messages.append({"role": "user", "content": question.prompt})
            answer = show.answer(runtime, question, messages)
            messages.append({"role": "assistant", "content": answer})
    show.heading("Seen")
    show.lines([show.seen.line(), f"in {time.perf_counter() - start:.0f} s", *_WORDS])
    if show.seen.wrong:
        raise DiffusionGemmaError(
            f"{show.seen.wrong} of {len(show.seen.results)} answers are not the expected ones.",
            "Please report it, with the output above.",
        )


_LEFT_OUT = (" ", "folder", "files", "template", "stops at")

_WORDS = (
    "",
    "This model is tiny: trained from scratch on made-up tasks so that every part of the",
    "program can be seen at work offline. It is not a small DiffusionGemma, knows nothing",
    "beyond its tasks, and its speed and answers say nothing about the real model's.",
    "Next: dgemma chat -m demo (in a clone: .venv/bin/dgemma chat -m demo)",
)


class Show:
    """Prints the demo: everything readable to stdout, the live canvas on a terminal."""

    def __init__(self, streams: Terminal, pace: float) -> None:
        self._streams = streams
        self._out: AnswerOut = terminal.standard_output(streams)
        self._notes: Notes = terminal.standard_error(streams)
        self._pace = pace if streams.interactive else 0.0
        self._headings = 0
        self.seen = Seen()

    def heading(self, text: str) -> None:
        """The next part begins."""
        gap = "\n" if self._headings else ""
        self._headings += 1
        self._out.write(f"{gap}{self._headings}. {text}\n")

    def lines(self, lines: list[str]) -> None:
        """Lines of a part."""
        self._out.write("".join(f"   {line}".rstrip() + "\n" for line in lines))

    def answer(
        self, runtime: Runtime, question: Question, prompt: str | list[dict[str, Any]]
    ) -> str:
        """Asks, shows the canvas resolving, prints the answer and judges it."""
        self._out.write(f"   > {question.prompt}\n")
        view = choose_view("auto", self._streams, self._notes, runtime)
        sink = PacedSink(view, self._pace)
        result = run_answer(runtime, prompt, sink, view, {"seed": SEED})
        good = question.expected(result.text)
        self.seen.results.append(result)
        self.seen.wrong += not good
        for line in result.text.splitlines():
            self.lines(textwrap.wrap(line, 80, drop_whitespace=False) or [""])
        steps = ", ".join(map(str, result.stats.steps))
        seconds = result.stats.prefill_seconds + result.stats.denoise_seconds - sink.paused
        canvases = "canvas" if result.stats.canvases == 1 else "canvases"
        self._out.write(
            f"   [{'as expected' if good else 'NOT as expected'}: {result.stats.tokens} tokens,"
            f" {result.stats.canvases} {canvases}, steps {steps},"
            f" {seconds:.1f} s]\n"
        )
        return result.text


class PacedSink(AnswerSink):
    """Collects an answer, slowly enough to be watched."""

    def __init__(self, view: Any, pace: float) -> None:
        super().__init__(None, view)
        self._pace = pace
        self.paused = 0.0

    def feed(self, event: Any) -> None:
        """As AnswerSink, with a pause after each step; `paused` is how long in all."""
        from mlx_diffusiongemma.diffusion.events import Step

        super().feed(event)
        if self._pace and isinstance(event, Step):
            start = time.perf_counter()
            time.sleep(self._pace)
            self.paused += time.perf_counter() - start
