"""No option is taken and then ignored, and what temperature 0 and a seed mean.

Elsewhere samplers' flags were accepted without effect, or a request was refused for carrying a
temperature of 0 and a seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma import Step, load
from tests.reports.models import run, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with large embeddings: entropies are of the size that bounds are about."""
    return write_model(tmp_path_factory.mktemp("options") / "model", ends=[])


def answer(model: Path, *args: object, seed: int | None = 5) -> dict[str, Any]:
    """The answer's text and counts, without what depends on the clock."""
    seeded = () if seed is None else ("--seed", seed)
    base = ("generate", "-m", model, "-p", "hi", "--max-tokens", 16, "--json", "-q")
    ran = run(*base, *seeded, *args)
    assert ran.code == 0, ran.err
    told: dict[str, Any] = json.loads(ran.out)
    told.pop("seconds")
    return told


@pytest.mark.parametrize(
    "option",
    [
        ("--max-tokens", "17"),
        ("--temp", "0"),
        ("--temp", "0.5"),
        ("--seed", "6"),
        ("--steps", "3"),
        ("--sampler", "confidence"),
        ("--entropy-bound", "50"),
        ("--t-min", "0.1"),
        ("--t-max", "1.5"),
        ("--stability", "0", "--confidence", "20"),
        ("--thinking",),
        ("--system-prompt", "Be brief."),
        ("--raw",),
    ],
    ids=" ".join,
)
def test_every_accepted_option_changes_the_answer(model: Path, option: tuple[str, ...]) -> None:
    """Text, tokens or steps: something must differ from the run without it."""
    assert answer(model, *option) != answer(model)


def test_stopping_options_decide_the_step(model: Path) -> None:
    """Stable after so many equal predictions, confident below so many nats: each has its say."""
    assert answer(model, "--stability", "0", "--confidence", "20")["steps"] == [1]
    assert answer(model, "--stability", "1", "--confidence", "20")["steps"] != [1]
    assert answer(model, "--stability", "0")["steps"] != [1]


def test_temperature_zero_with_a_seed_repeats(model: Path) -> None:
    cold = [answer(model, "--temp", "0", seed=42) for _ in range(2)]
    assert cold[0] == cold[1] != answer(model, "--temp", "0", seed=43)


def test_temperature_zero_alone_differs_and_the_help_says_why(model: Path) -> None:
    """The canvas starts as noise, so only a seed makes a run repeatable."""
    cold = [answer(model, "--temp", "0", seed=None) for _ in range(2)]
    assert cold[0]["seed"] != cold[1]["seed"] and cold[0]["answer"] != cold[1]["answer"]
    told = " ".join(run("generate", "--help").out.replace("\u2502", " ").split())
    assert "The canvas starts as noise" in told and "add --seed" in told


def test_each_steps_temperature_is_told(model: Path) -> None:
    """A limit of 4 spreads 0.8 to 0.4 over four steps; the reference never reaches the 0.4."""
    runtime = load(model)
    events = runtime.stream("hi", steps=4, t_min=0.4, t_max=0.8, seed=1, max_tokens=16)
    steps = [event for event in events if isinstance(event, Step)]
    assert [step.temperature for step in steps] == pytest.approx([0.8, 0.7, 0.6, 0.5])
    assert {step.max_steps for step in steps} == {4}
