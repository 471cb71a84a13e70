"""The confidence sampler: reveals for good, at least one position a step."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_diffusiongemma.diffusion.denoise import denoise_canvas
from mlx_diffusiongemma.diffusion.sampler import ConfidenceSampler
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from tests.unit.diffusion.scripted import CountingDraws, ScriptedModel, sure


def log_odds(probabilities: list[float]) -> mx.array:
    """Logits (L, 2) whose token 1 has the given probability."""
    p = np.array(probabilities, np.float32)
    return mx.array(np.stack([np.zeros_like(p), np.log(p / (1 - p))], axis=-1))


def accept(
    sampler: ConfidenceSampler, probabilities: list[float], *, last: bool = False
) -> list[bool]:
    count = len(probabilities)
    proposals = mx.ones((count,), mx.int32)
    mask = sampler.accept(log_odds(probabilities), mx.zeros((count,)), proposals, last=last)
    return np.array(mask).tolist()


def test_reveals_what_reaches_the_threshold() -> None:
    assert accept(ConfidenceSampler(0.9, 3), [0.95, 0.5, 0.91]) == [True, False, True]


def test_reveals_the_surest_when_none_does() -> None:
    assert accept(ConfidenceSampler(0.9, 3), [0.3, 0.7, 0.6]) == [False, True, False]


def test_forces_only_hidden_positions() -> None:
    sampler = ConfidenceSampler(0.9, 3)
    accept(sampler, [0.99, 0.2, 0.3])
    assert accept(sampler, [0.8, 0.2, 0.3]) == [True, False, True]


def test_reveals_all_on_the_last_step() -> None:
    sampler = ConfidenceSampler(0.9, 3)
    assert accept(sampler, [0.1, 0.2, 0.3], last=True) == [True] * 3
    assert sampler.finished().item()


def test_revealed_ids_stay() -> None:
    sampler = ConfidenceSampler(0.9, 2)
    noise = mx.array([30, 31])
    sampler.accept(log_odds([0.95, 0.5]), mx.zeros((2,)), mx.array([1, 1]), last=False)
    assert np.array(sampler.canvas(mx.array([1, 1]), noise)).tolist() == [1, 31]
    sampler.accept(log_odds([0.99, 0.99]), mx.zeros((2,)), mx.array([0, 1]), last=False)
    assert np.array(sampler.canvas(mx.array([0, 1]), noise)).tolist() == [1, 1]


def test_a_canvas_ends_when_everything_is_revealed() -> None:
    """One position a step at worst: a canvas of four takes four passes, whatever the limit."""
    model = ScriptedModel([sure([1, 2, 3, 4], peak=0.5)])
    settings = DiffusionSettings(max_steps=9, sampler="confidence", reveal_threshold=0.99)
    steps = list(denoise_canvas(model, settings, CountingDraws(), 1))
    assert [int(step.accepted.sum()) for step in steps] == [1, 2, 3, 4]
    assert [step.converged for step in steps] == [False, False, False, True]
    assert steps[-1].draft.tolist() == [1, 2, 3, 4]


def test_a_sure_canvas_ends_at_once() -> None:
    model = ScriptedModel([sure([1, 2, 3, 4])])
    settings = DiffusionSettings(max_steps=9, sampler="confidence", stability_threshold=3)
    steps = list(denoise_canvas(model, settings, CountingDraws(), 1))
    assert len(steps) == 1
    assert steps[0].converged
