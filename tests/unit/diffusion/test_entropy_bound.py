"""The entropy-bound sampler: what is accepted, and what the canvas becomes."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.diffusion.sampler import EntropyBoundSampler


def accepted(entropies: list[float], bound: float = 0.1) -> list[bool]:
    sampler = EntropyBoundSampler(bound)
    count = len(entropies)
    mask = sampler.accept(
        mx.zeros((count, 4)), mx.array(entropies), mx.zeros((count,), mx.int32), last=False
    )
    return np.array(mask).tolist()


def test_the_references_unit_case() -> None:
    assert accepted([0.0, 0.15, 0.3]) == [True, True, False]


def test_positions_need_not_be_sorted() -> None:
    assert accepted([0.3, 0.0, 0.15]) == [False, True, True]


def test_the_surest_is_always_accepted() -> None:
    assert accepted([3.0, 2.0, 4.0]) == [False, True, False]
    assert accepted([5.0]) == [True]


def test_a_sum_equal_to_the_bound_still_counts() -> None:
    # 0.25 and 0.5 are exact in binary.
    assert accepted([0.25, 0.5, 0.5], bound=0.25) == [True, True, False]


def test_all_certain_positions_are_accepted() -> None:
    assert accepted([0.0] * 9) == [True] * 9


def test_large_bound_accepts_everything() -> None:
    assert accepted([1.0, 2.0, 3.0], bound=100.0) == [True] * 3


def test_canvas_takes_proposals_where_accepted_and_noise_elsewhere() -> None:
    sampler = EntropyBoundSampler(0.1)
    proposals, noise = mx.array([1, 2, 3]), mx.array([7, 8, 9])
    sampler.accept(mx.zeros((3, 4)), mx.array([0.0, 0.15, 0.3]), proposals, last=False)
    assert np.array(sampler.canvas(proposals, noise)).tolist() == [1, 2, 9]


def test_acceptance_is_not_sticky() -> None:
    sampler = EntropyBoundSampler(0.1)
    proposals, noise = mx.array([1, 2]), mx.array([8, 9])
    steps = [([0.0, 0.5], [1, 2]), ([2.0, 0.3], [8, 2]), ([0.3, 2.0], [1, 9])]
    for entropies, canvas in steps:
        sampler.accept(mx.zeros((2, 4)), mx.array(entropies), proposals, last=False)
        assert np.array(sampler.canvas(proposals, noise)).tolist() == canvas


@pytest.mark.parametrize("last", [False, True])
def test_never_says_finished(last: bool) -> None:
    sampler = EntropyBoundSampler(0.1)
    sampler.accept(mx.zeros((1, 4)), mx.array([0.0]), mx.array([1]), last=last)
    assert not sampler.finished().item()
