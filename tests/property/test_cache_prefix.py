"""Any way of building a prefix - chunks, commits, trims - ends in the same prefix."""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_diffusiongemma.model.cache import Prefix
from mlx_diffusiongemma.model.transformer import DiffusionGemma
from tests.parity.cases import Case
from tests.parity.ours import build_ours, prefix_arrays

WINDOWS = (1, 2, 5, 9, 64)
LONGEST = 40


def case(window: int) -> Case:
    return Case(f"prefix{window}", 970, kinds="ssf", hidden=16, window=window, canvas=6)


@cache
def model(window: int) -> DiffusionGemma:
    return build_ours(case(window))


def ids(window: int) -> list[int]:
    return case(window).ids(1, LONGEST)


@cache
def fresh(window: int, count: int) -> Prefix:
    return model(window).prefill(ids(window)[:count])


def assert_same(ours: Prefix, window: int, count: int) -> None:
    exact = fresh(window, count)
    assert ours.length == count
    for mine, other in zip(prefix_arrays(ours), prefix_arrays(exact), strict=True):
        for a, b in zip(mine, other, strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max(initial=0) <= 1e-5
    canvas = mx.array(case(window).ids(2, 6))
    logits = [np.array(model(window).canvas_logits(prefix, canvas)) for prefix in (ours, exact)]
    assert np.abs(logits[0] - logits[1]).max() <= 5e-5


@settings(max_examples=25)
@given(st.sampled_from(WINDOWS), st.lists(st.integers(1, 20), max_size=6))
def test_any_chunks(window: int, sizes: list[int]) -> None:
    prefix, done = model(window).empty_prefix(), 0
    for size in sizes:
        part = ids(window)[done : done + size]
        prefix = model(window).prefill(part, prefix)
        done += len(part)
    assert_same(prefix, window, done)


@settings(max_examples=25)
@given(st.sampled_from(WINDOWS), st.integers(0, LONGEST), st.integers(0, LONGEST))
def test_trim_is_a_fresh_prefill(window: int, count: int, length: int) -> None:
    """Whenever it says it can be trimmed, the result is right; the last canvas always can."""
    prefix = fresh(window, count)
    if prefix.can_trim(length):
        assert_same(prefix.trim(length), window, length)
    else:
        assert length > count or length < count - prefix.slack
        assert length > count or count > window - 1


@settings(max_examples=25)
@given(st.sampled_from(WINDOWS), st.lists(st.integers(-6, 15), min_size=1, max_size=8))
def test_any_walk(window: int, moves: list[int]) -> None:
    """Forwards by encoding, backwards by trimming; then once more forwards."""
    prefix = model(window).empty_prefix()
    for move in [*moves, 3]:
        target = min(max(prefix.length + move, 0), LONGEST)
        if target >= prefix.length:
            prefix = model(window).prefill(ids(window)[prefix.length : target], prefix)
        elif prefix.can_trim(target):
            prefix = prefix.trim(target)
    assert_same(prefix, window, prefix.length)


@settings(max_examples=25)
@given(st.sampled_from(WINDOWS), st.integers(0, LONGEST - 6))
def test_a_committed_canvas_can_always_be_taken_back(window: int, count: int) -> None:
    before = fresh(window, count)
    committed = model(window).encode(mx.array(ids(window)[count : count + 6]), before)[1]
    assert_same(committed, window, count + 6)
    assert committed.can_trim(count)
    assert_same(committed.trim(count), window, count)
