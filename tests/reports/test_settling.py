"""Canvases settle as early with the sorted, gathered experts as with a plain loop over them.

A fast but slightly wrong expert path elsewhere kept the mean entropy a hundred times above the
stopping level: every canvas ran to its last step. Neither may a conversion cost many more steps.
"""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from mlx_diffusiongemma import Runtime, load
from mlx_diffusiongemma.convert import convert_checkpoint
from mlx_diffusiongemma.model.moe import Experts, geglu

QUESTIONS = (
    "What is the capital of Italy?",
    "What is the capital of Japan?",
    "Extract JSON: Ann is 31 years old and lives in Rome.",
    "Repeat: cat moon lamp",
    "Hello!",
)


def plain_experts(self: Experts, x: mx.array, experts: mx.array, weights: mx.array) -> mx.array:
    """Every expert for every token; unchosen ones weigh nothing."""
    rows = mx.zeros_like(x)
    for expert in range(self.gate_up_proj.weight.shape[0]):
        chosen = mx.full((x.shape[0],), expert, dtype=mx.uint32)
        gate, up = mx.split(self.gate_up_proj(x[:, None, :], chosen), 2, axis=-1)
        out = self.down_proj(geglu(gate, up), chosen)[:, 0, :]
        share = (weights * (experts == expert)).sum(axis=-1, keepdims=True)
        rows = rows + out * share
    return rows


def settled(runtime: Runtime) -> tuple[list[int], list[str]]:
    """Steps of every canvas, and the answers."""
    results = [runtime.generate(question, seed=1, max_tokens=96) for question in QUESTIONS]
    return [step for r in results for step in r.stats.steps], [r.text for r in results]


@pytest.fixture(scope="module")
def expected() -> tuple[list[int], list[str]]:
    return settled(load("demo"))


def test_sorted_experts_settle_like_a_plain_loop(
    expected: tuple[list[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = load("demo").settings().max_steps
    assert all(step < cap for step in expected[0])
    monkeypatch.setattr(Experts, "__call__", plain_experts)
    plain, answers = settled(load("demo"))
    assert all(step < cap for step in plain)
    assert sum(expected[0]) <= 1.3 * sum(plain)
    same = [mine == other for mine, other in zip(expected[1], answers, strict=True)]
    assert sum(same) >= len(same) - 1  # the last bit may send one of them another way


def test_a_conversion_needs_hardly_more_steps(
    expected: tuple[list[int], list[str]], tmp_path: Path
) -> None:
    convert_checkpoint("demo", tmp_path / "converted")
    steps, _ = settled(load(tmp_path / "converted"))
    assert sum(steps) / len(steps) <= 1.3 * sum(expected[0]) / len(expected[0])
