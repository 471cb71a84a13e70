"""`dgemma generate`: one prompt, one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlx_diffusiongemma.cli import options, prompts, session, settings, terminal
from mlx_diffusiongemma.cli.options import Sampling
from mlx_diffusiongemma.cli.render import AnswerSink, run_answer
from mlx_diffusiongemma.cli.report import as_json, notices, statistics
from mlx_diffusiongemma.cli.views import choose_view
from mlx_diffusiongemma.errors import UsageError

EXAMPLES = """\
The prompt:
  -p text is taken as it is: a backslash and an n stay two characters. When
  standard input is not a terminal it is read to its end, and the prompt is its
  text, a blank line, and the -p text. From standard input a UTF-8 byte order
  mark and the last newline are dropped, and CRLF becomes LF. In a script that
  keeps standard input open for something else, add < /dev/null.

The output:
  The answer alone goes to standard output, with one newline added if it does
  not end in one; an empty answer prints nothing. Everything else goes to
  standard error.

Exit codes:
  0 ok   1 failure   2 usage   3 model or files invalid   4 not enough memory
  5 network or offline   6 output   129 hung up   130 Ctrl-C   143 terminated
  A reader that closes the pipe early, such as head, is no failure: 0.

Examples:
  dgemma generate -m demo -p "What is the capital of Italy?"
  dgemma generate -m ./my-model < question.txt > answer.txt
  git diff | dgemma generate -p "Write a commit message for this change."
  dgemma generate -m demo -p "Tell me a story about a cat." --seed 7 --stats
  dgemma generate -m demo -p "Reverse: sun cat" --json | jq -r .answer
"""


def generate(
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = None,
    prompt: options.Prompt = None,
    system_prompt: options.System = None,
    thinking: options.Thinking = None,
    raw: options.Raw = False,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = 1.0,
    seed: options.Seed = None,
    steps: options.Steps = None,
    sampler: options.Sampler = "entropy-bound",
    entropy_bound: options.EntropyBound = None,
    t_min: options.TMin = None,
    t_max: options.TMax = None,
    stability: options.Stability = None,
    confidence: options.Confidence = None,
    show_thinking: options.ShowThinking = False,
    stats: options.Stats = False,
    json: options.Json = False,
    stream: options.Stream = True,
    view: options.View = "auto",
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Answer one prompt.

    The canvas starts as noise and settles in a few steps; text appears a canvas at a time.
    """
    sampling = Sampling(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        steps=steps,
        sampler=sampler,
        entropy_bound=entropy_bound,
        t_min=t_min,
        t_max=t_max,
        stability=stability,
        confidence=confidence,
        thinking=thinking,
    )
    options.check_choices(view, dtype)
    _check_raw(raw, system_prompt, thinking)
    streams = terminal.detect()
    notes = terminal.standard_error(streams, quiet)
    name = settings.choose_model(model)
    text = prompts.read_prompt(prompt, streams, notes)
    opened = session.open_session(name, revision, dtype, streams, notes)
    keywords = {**sampling.keywords(), "raw": raw}
    if system_prompt is not None:
        keywords["system"] = system_prompt
    printing = Printing(view, show_thinking, stream, json, stats)
    answer(opened, text, keywords, streams, notes, printing)


@dataclass(frozen=True)
class Printing:
    """How an answer is to be shown."""

    view: str
    show_thinking: bool
    stream: bool
    json: bool
    stats: bool


def answer(
    opened: session.Opened,
    text: str,
    keywords: Mapping[str, Any],
    streams: terminal.Terminal,
    notes: terminal.Notes,
    printing: Printing,
) -> None:
    """Streams the answer to standard output, then says what is worth saying about it."""
    out = terminal.standard_output(streams)
    view = choose_view(printing.view, streams, notes, opened.runtime)
    sink = AnswerSink(
        None if printing.json else out,
        view,
        thoughts=notes if printing.show_thinking else None,
        stream=printing.stream,
    )
    result = run_answer(opened.runtime, text, sink, view, keywords)
    if printing.json:
        out.write(as_json(result, opened.name, opened.seconds))
    for sentence in notices(result):
        notes.note(sentence)
    if printing.stats:
        notes.line(statistics(result, opened.seconds))


def _check_raw(raw: bool, system_prompt: str | None, thinking: bool | None) -> None:
    if system_prompt is not None:
        prompts.check_text("--system-prompt", system_prompt)
    if raw and system_prompt is not None:
        raise UsageError("--raw takes no --system-prompt: there is no template to put it in.")
    if raw and thinking is not None:
        raise UsageError("--raw takes no --thinking or --no-thinking: there is no template.")
