"""The entropy-bound sampler against a loop over positions, for any entropies and bound."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlx_diffusiongemma.diffusion.sampler import EntropyBoundSampler

# Multiples of 1/64 add up exactly in float32, so the loop and the sums cannot disagree on ties.
exact = st.integers(0, 640).map(lambda value: value / 64)


def accept(entropies: list[float], bound: float) -> list[bool]:
    sampler = EntropyBoundSampler(bound)
    ids = mx.zeros((len(entropies),), mx.int32)
    mask = sampler.accept(mx.zeros((len(entropies), 2)), mx.array(entropies), ids, last=False)
    return np.array(mask).tolist()


@given(st.lists(exact, min_size=1, max_size=40, unique=True), exact.filter(lambda b: b > 0))
def test_accepts_while_the_lower_ones_stay_within_the_bound(
    entropies: list[float], bound: float
) -> None:
    expected = [sum(e for e in entropies if e < own) <= bound for own in entropies]
    assert accept(entropies, bound) == expected


@given(st.lists(exact, min_size=1, max_size=40), exact.filter(lambda b: b > 0))
def test_with_ties_as_many_are_accepted_as_sorting_says(
    entropies: list[float], bound: float
) -> None:
    mask = accept(entropies, bound)
    total, count = 0.0, 0
    for entropy in sorted(entropies):
        count += total <= bound
        total += entropy
    assert sum(mask) == count >= 1
    chosen = [e for e, yes in zip(entropies, mask, strict=True) if yes]
    left = [e for e, yes in zip(entropies, mask, strict=True) if not yes]
    assert max(chosen) <= min(left, default=np.inf)


@given(st.lists(exact, min_size=1, max_size=20), st.data())
def test_a_larger_bound_accepts_no_less(entropies: list[float], data: st.DataObject) -> None:
    low, high = sorted(data.draw(st.tuples(exact, exact)))
    before, after = accept(entropies, low + 1 / 64), accept(entropies, high + 1 / 64)
    assert sum(before) <= sum(after)
