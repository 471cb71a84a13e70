"""The adaptive stop: how many equal predictions, and how low a mean entropy."""

from __future__ import annotations

import mlx.core as mx
import pytest

from mlx_diffusiongemma.diffusion.stopping import StableAndConfident

CALM, UNSURE = [0.0, 0.0], [0.0, 0.02]  # mean entropies 0 and 0.01


def run(stability: int, steps: list[tuple[list[int], list[float]]]) -> list[tuple[bool, bool]]:
    stopping = StableAndConfident(stability, confidence=0.005)
    results = [stopping.update(mx.array(ids), mx.array(entropies)) for ids, entropies in steps]
    return [(bool(stable.item()), bool(stop.item())) for stable, stop in results]


@pytest.mark.parametrize("stability", [0, 1, 2, 3, 5])
def test_fires_after_stability_more_equal_predictions(stability: int) -> None:
    """Stability 1 fires on the 2nd equal canvas, 2 on the 3rd; 0 at once."""
    fired = [stop for _, stop in run(stability, [([4, 5], CALM)] * 8)]
    assert fired == [step >= stability for step in range(8)]


@pytest.mark.parametrize("stability", [1, 2, 3])
def test_a_changed_prediction_starts_the_count_again(stability: int) -> None:
    steps = [([4, 5], CALM)] * stability + [([4, 6], CALM)] + [([4, 5], CALM)] * 5
    fired = [stop for _, stop in run(stability, steps)]
    assert fired == [step >= 2 * stability + 1 for step in range(len(steps))]


def test_every_position_counts() -> None:
    assert run(1, [([1, 2], CALM), ([1, 3], CALM), ([9, 3], CALM)])[1:] == [(False, False)] * 2


def test_stable_is_not_enough() -> None:
    assert run(1, [([1, 2], CALM), ([1, 2], UNSURE)]) == [(False, False), (True, False)]


def test_confident_is_not_enough() -> None:
    assert run(1, [([1, 2], CALM), ([2, 2], CALM)])[1] == (False, False)


def test_mean_entropy_must_be_below_the_threshold() -> None:
    stopping = StableAndConfident(0, confidence=0.5)
    assert not stopping.update(mx.array([1, 1]), mx.array([0.25, 0.75]))[1].item()
    assert stopping.update(mx.array([1, 1]), mx.array([0.25, 0.7]))[1].item()


def test_threshold_zero_never_fires() -> None:
    stopping = StableAndConfident(0, confidence=0.0)
    assert not stopping.update(mx.array([1]), mx.array([0.0]))[1].item()


def test_earlier_doubt_does_not_matter() -> None:
    """Only the present step has to be confident; the earlier ones have to agree."""
    assert run(2, [([7, 7], UNSURE), ([7, 7], UNSURE), ([7, 7], CALM)])[-1] == (True, True)
