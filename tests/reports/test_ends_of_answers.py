"""How answers end, on a whole runtime: what is printed, what is said, what is not computed.

Elsewhere text behind the end token was printed, a blank answer came without a word, and a budget
spent inside a thought looked like an empty answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma import Runtime, load
from tests.reports.models import run, write_model

CANVAS = 16
OPTIONS: dict[str, Any] = {"seed": 3, "steps": 2}


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("endless") / "model", ends=[])


@pytest.fixture(scope="module")
def ids(endless: Path) -> tuple[int, ...]:
    """What the model says if nothing ends it: three canvases."""
    return load(endless).generate("hi", max_tokens=3 * CANVAS, **OPTIONS).token_ids


def ending_at(endless: Path, ids: tuple[int, ...], first: int) -> tuple[Runtime, int]:
    """A runtime whose end token is the id at `first` or the next one that was not said before."""
    place = next(i for i in range(first, len(ids)) if ids[i] not in ids[:i])
    runtime = load(endless)
    runtime.stop_ids = frozenset({ids[place]})
    return runtime, place


@pytest.mark.parametrize("first", [0, 5, CANVAS, 2 * CANVAS + 3])
def test_nothing_comes_after_the_end_token(endless: Path, ids: tuple[int, ...], first: int) -> None:
    runtime, place = ending_at(endless, ids, first)
    result = runtime.generate("hi", max_tokens=3 * CANVAS, **OPTIONS)
    assert result.token_ids == ids[: place + 1]
    before = load(endless).generate("hi", max_tokens=place, **OPTIONS).text if place else ""
    assert result.text == before  # here the end token is an ordinary word, and is not said either
    assert result.finish_reason == "stop"
    assert result.stats.canvases == place // CANVAS + 1  # and no canvas is started behind it


def test_an_end_token_exactly_at_the_limit_is_a_stop(endless: Path, ids: tuple[int, ...]) -> None:
    runtime, place = ending_at(endless, ids, 5)
    assert runtime.generate("hi", max_tokens=place + 1, **OPTIONS).finish_reason == "stop"
    assert runtime.generate("hi", max_tokens=place, **OPTIONS).finish_reason == "length"


def test_a_blank_answer_is_never_silent(
    endless: Path, ids: tuple[int, ...], tmp_path: Path
) -> None:
    """The first token ends the answer: nothing on stdout, a note on stderr, success."""
    model = write_model(tmp_path / "model", ends=[ids[0]])
    ask = ("generate", "-m", model, "-p", "hi", "--seed", "3", "--steps", "2")
    ran = run(*ask)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("note: the model ended at once") and ran.err.count("\n") == 1
    told = json.loads(run(*ask, "--json", "-q").out)
    assert (told["answer"], told["tokens"], told["finish_reason"]) == ("", 1, "stop")


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 33])
def test_as_many_tokens_as_asked_for(endless: Path, tokens: int) -> None:
    ask = ("generate", "-m", endless, "-p", "hi", "--steps", "1", "--max-tokens", str(tokens))
    ran = run(*ask, "--json")
    told = json.loads(ran.out)
    assert (told["tokens"], told["finish_reason"]) == (tokens, "length")
    assert f"note: the answer was cut after {tokens} token" in ran.err


def test_a_budget_spent_on_thinking_is_said_and_no_half_thought_printed() -> None:
    ask = ("generate", "-m", "demo", "-p", "What is the capital of Italy?", "--seed", "1")
    ran = run(*ask, "--thinking", "--max-tokens", "4")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("note: the model was still thinking when it was stopped after 4 ")


def test_a_full_context_shortens_the_answer_with_a_notice(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", ends=[], max_position_embeddings=64)
    ask = ("generate", "-m", model, "--steps", "1", "--max-tokens", "500")
    ran = run(*ask, "-p", "hi")
    assert ran.code == 0 and "context is full" in ran.err
    ran = run(*ask, "-p", "word " * 60)
    assert (ran.code, ran.out) == (2, "") and "context of 64" in ran.err
    ran = run(
        *("chat", "-m", model, "--steps", "1", "--max-tokens", "2"),
        stdin="hi\n" + "word " * 60 + "\nhi\n",
    )
    assert ran.code == 0 and ran.err.count("context of 64") == 1


def test_a_long_story_takes_its_canvases_and_nothing_follows() -> None:
    """The trained model: the canvas behind the end token is never started."""
    ask = ("generate", "-m", "demo", "-p", "Tell me a story about a fox.", "--seed", "1")
    told = json.loads(run(*ask, "--json").out)
    length = load("demo").config.canvas_length
    assert told["finish_reason"] == "stop"
    assert (told["canvases"] - 1) * length < told["tokens"] <= told["canvases"] * length
