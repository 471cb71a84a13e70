"""`generate`: exact bytes on both streams, exit codes, options handed on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mlx_diffusiongemma import errors
from mlx_diffusiongemma.cli import session
from mlx_diffusiongemma.text.channels import ToolCall
from tests.cli.conftest import Ran
from tests.cli.fake_runtime import Answer, FakeRuntime

THOUGHT = "<|channel>thought\nI must add.\n<channel|>"


def ask(cli: Callable[..., Ran], *args: str) -> Ran:
    return cli("generate", "-m", "x", "-p", "hi", *args)


@pytest.mark.parametrize(
    ("canvases", "out"),
    [
        (["Rome."], "Rome.\n"),
        (["Rome.\n"], "Rome.\n"),
        (["Rome.\n\n"], "Rome.\n\n"),
        (["Once upon", " a time."], "Once upon a time.\n"),
        (["one\n", "two\n"], "one\ntwo\n"),
        (["    indented\n\ttab"], "    indented\n\ttab\n"),
        ([THOUGHT + "The thought is 4."], "The thought is 4.\n"),
        (["caf\u00e9 \U0001f468\u200d\U0001f469\u200d\U0001f467 \ud55c"],) * 2,
        (["\x1b[31mred\x07\u202e"], "\x1b[31mred\x07\u202e\n"),
        ([""], ""),
        (["\n"], "\n"),
    ],
)
@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_standard_output_is_the_answer(
    cli: Callable[..., Ran],
    runtime: FakeRuntime,
    canvases: list[str],
    out: str | list[str],
    stream: str,
) -> None:
    runtime.answers = [Answer(canvases)]
    ran = ask(cli, stream, "-q")
    expected = out if isinstance(out, str) else out[0] + "\n"
    assert (ran.code, ran.out, ran.err) == (0, expected, "")
    assert runtime.closed == 1


def test_a_plain_run_says_nothing_else(cli: Callable[..., Ran]) -> None:
    assert ask(cli) == Ran(0, "The answer.\n", "")


def test_no_flags_leave_everything_to_the_checkpoint(
    cli: Callable[..., Ran], runtime: FakeRuntime
) -> None:
    ask(cli)
    defaults = {"temperature": 1.0, "sampler": "entropy-bound", "raw": False}
    assert runtime.calls == [("hi", defaults)]


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        (["--max-tokens", "5"], "max_tokens", 5),
        (["--temp", "0"], "temperature", 0.0),
        (["--temperature", "0.5"], "temperature", 0.5),
        (["--seed", "42"], "seed", 42),
        (["--steps", "4"], "steps", 4),
        (["--sampler", "confidence"], "sampler", "confidence"),
        (["--entropy-bound", "0.7"], "entropy_bound", 0.7),
        (["--t-min", "0.1"], "t_min", 0.1),
        (["--t-max", "0.9"], "t_max", 0.9),
        (["--stability", "0"], "stability_threshold", 0),
        (["--confidence", "0.01"], "confidence_threshold", 0.01),
        (["--thinking"], "thinking", True),
        (["--no-thinking"], "thinking", False),
        (["--system-prompt", "Be brief."], "system", "Be brief."),
        (["--raw"], "raw", True),
    ],
)
def test_options_reach_the_runtime(
    cli: Callable[..., Ran], runtime: FakeRuntime, args: list[str], name: str, value: Any
) -> None:
    assert ask(cli, *args).code == 0
    assert runtime.calls[0][1][name] == value


def test_every_keyword_is_one_the_runtime_knows() -> None:
    import inspect

    from mlx_diffusiongemma.cli.options import Sampling
    from mlx_diffusiongemma.runtime import Runtime, SamplingOptions

    known = {*inspect.signature(Runtime.stream).parameters, *SamplingOptions.__annotations__}
    given = Sampling(5, 1.0, 1, 4, "entropy-bound", 0.1, 0.1, 0.2, 1, 0.1, True).keywords()
    assert {*given, "system", "raw", "on_prefill"} <= known


# ---- notices ----


@pytest.mark.parametrize(
    ("answer", "out", "said"),
    [
        (Answer([""]), "", "the model ended at once, so the answer is empty"),
        (Answer([THOUGHT]), "", "the model ended at once, so the answer is empty"),
        (Answer(["Once upon"], "length"), "Once upon\n", "was cut after 2 tokens"),
        (Answer(["Once upon"], "context"), "Once upon\n", "context is full"),
        (
            Answer(["<|channel>thought\nI must"], "length"),
            "",
            "still thinking when it was stopped after",
        ),
        (
            Answer(["x"], tool_calls=(ToolCall("get_weather", {"city": "Rome"}),)),
            "x\n",
            "called a tool (get_weather)",
        ),
    ],
)
def test_what_a_reader_may_miss_is_said(
    cli: Callable[..., Ran], runtime: FakeRuntime, answer: Answer, out: str, said: str
) -> None:
    runtime.answers = [answer]
    ran = ask(cli)
    assert (ran.code, ran.out) == (0, out)
    assert ran.err.startswith("note: ") and ran.err.count("\n") == 1
    assert said in ran.err
    assert ask(cli, "-q") == Ran(0, out, "")


def test_the_runtimes_notices_are_told_unless_quiet(
    cli: Callable[..., Ran], runtime: FakeRuntime
) -> None:
    runtime.notices = ("No generation_config.json: defaults are used.",)
    assert ask(cli).err == "note: No generation_config.json: defaults are used.\n"
    assert ask(cli, "--quiet").err == ""


# ---- thinking, statistics, JSON ----


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_thoughts_are_shown_apart_and_only_when_asked(
    cli: Callable[..., Ran], runtime: FakeRuntime, stream: str
) -> None:
    runtime.answers = [Answer(["<|channel>thought\nI must", " add.\n<channel|>It is", " 4."])]
    assert ask(cli, stream) == Ran(0, "It is 4.\n", "")
    shown = ask(cli, stream, "--show-thinking")
    assert shown == Ran(0, "It is 4.\n", "[thinking]\nI must add.\n[/thinking]\n")
    assert ask(cli, "--show-thinking", "-q").err == shown.err


def test_a_half_thought_is_shown_when_asked(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    runtime.answers = [Answer(["<|channel>thought\nI must"], "length")]
    ran = ask(cli, "--show-thinking")
    assert ran.out == ""
    assert ran.err.startswith("[thinking]\nI must\n[/thinking]\nnote: ")


def test_statistics(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    runtime.answers = [Answer(["Once upon", " a time."])]
    ran = ask(cli, "--stats", "--seed", "9")
    assert ran.out == "Once upon a time.\n"
    lines = ran.err.splitlines()
    assert lines[0].startswith("load: ")
    assert lines[1:] == [
        "prompt: 7 tokens in 0.25 s",
        "answer: 6 tokens in 0.50 s, 12.0 tokens/s, ended by stop",
        "canvas: 2 canvases, 6 steps (3, 3), 3.0 steps/canvas, 1.0 tokens/step",
        "seed: 9",
    ]
    assert ask(cli, "--stats", "-q").err == ""


def test_json_is_one_object(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    call = ToolCall("get_weather", {"city": "Rome"})
    runtime.answers = [Answer([THOUGHT + "It is\n\x1b\x7f\u202e\u00e94."], tool_calls=(call,))]
    ran = ask(cli, "--json", "-q")
    assert ran.out.count("\n") == 1
    assert not {"\x1b", "\x7f", "\u202e"} & set(ran.out)
    content = json.loads(ran.out)
    seconds = content.pop("seconds")
    assert set(seconds) == {"load", "prefill", "denoise"}
    assert content == {
        "answer": "It is\n\x1b\x7f\u202e\u00e94.",
        "thinking": "I must add.\n",
        "tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}],
        "finish_reason": "stop",
        "cut_while_thinking": False,
        "prompt_tokens": 7,
        "tokens": content["tokens"],
        "canvases": 1,
        "steps": [3],
        "seed": 12345,
        "model": "x",
    }


# ---- errors ----


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DiffusionGemmaError("It broke."), 1),
        (errors.UsageError("Too long."), 2),
        (errors.ModelError("It is damaged."), 3),
        (errors.MemoryLimitError("It does not fit."), 4),
        (errors.NetworkError("The hub is out."), 5),
        (errors.OutputError("The disk is full."), 6),
    ],
)
def test_errors_are_a_sentence_a_hint_and_a_code(
    cli: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    error: errors.DiffusionGemmaError,
    code: int,
) -> None:
    error.hint = "Do this."

    def fail(model: str, revision: str | None, dtype: str | None) -> Any:
        raise error

    monkeypatch.setattr(session, "open_runtime", fail)
    assert ask(cli) == Ran(code, "", f"error: {error.message}\nhint: Do this.\n")
    debugged = ask(cli, "--debug")
    assert debugged.code == code
    assert debugged.err.startswith("Traceback") and debugged.err.endswith("hint: Do this.\n")


def test_an_unexpected_error_is_one_sentence(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: str, revision: str | None, dtype: str | None) -> Any:
        raise KeyError("two\nlines \x1b[31m")

    monkeypatch.setattr(session, "open_runtime", fail)
    ran = ask(cli)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "error: Internal error: KeyError: 'two\\nlines \\x1b[31m'.\n"
        "hint: Run it again with --debug to see where.\n"
    )
    assert "Traceback" in ask(cli, "--debug").err


def test_running_out_of_memory_has_its_own_code(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: str, revision: str | None, dtype: str | None) -> Any:
        raise MemoryError

    monkeypatch.setattr(session, "open_runtime", fail)
    assert ask(cli).code == 4


def test_what_was_final_stays_when_a_run_breaks(
    cli: Callable[..., Ran], runtime: FakeRuntime
) -> None:
    def fail(canvas: int, step: int) -> None:
        if canvas == 2:
            raise errors.MemoryLimitError("Memory ran out.")

    runtime.answers = [Answer(["Once upon", " a time."], before_step=fail)]
    for stream in ("--stream", "--no-stream"):
        assert ask(cli, stream) == Ran(4, "Once upon\n", "error: Memory ran out.\n")


@pytest.mark.parametrize("view", ["live", "plain"])
def test_a_view_that_cannot_be_had_is_announced(cli: Callable[..., Ran], view: str) -> None:
    ran = ask(cli, "--view", view)
    assert ran.out == "The answer.\n"
    assert ran.err == f"note: --view {view} needs a terminal; nothing is shown.\n"
    assert ask(cli, "--view", view, "-q").err == ""
    assert ask(cli, "--view", "off").err == ""
