"""Blockwise causal attention equals the plain formula, whatever the block, past and window."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_diffusiongemma.model.attention import attend_causal
from mlx_diffusiongemma.model.cache import KeyValues


@settings(max_examples=60)
@given(
    count=st.integers(1, 40),
    past=st.integers(0, 30),
    window=st.one_of(st.none(), st.integers(1, 50)),
    block=st.integers(1, 45),
    seed=st.integers(0, 1000),
)
def test_equals_the_plain_formula(
    count: int, past: int, window: int | None, block: int, seed: int
) -> None:
    random = np.random.RandomState(seed)
    heads, kv_heads, size, total = 4, 2, 8, past + count
    queries = random.normal(0, 1, (1, heads, count, size)).astype(np.float32)
    keys, values = random.normal(0, 1, (2, 1, kv_heads, total, size)).astype(np.float32)
    ours = attend_causal(
        mx.array(queries), KeyValues(mx.array(keys), mx.array(values)), window, block
    )

    scores = np.einsum("bhnd,bhmd->bhnm", queries, keys.repeat(2, axis=1)).astype(np.float64)
    row, column = np.arange(past, total)[:, None], np.arange(total)[None]
    visible = (column <= row) & (column > row - (window or total + 1))
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    exact = np.einsum("bhnm,bhmd->bhnd", weights, values.repeat(2, axis=1))
    assert np.abs(np.array(ours) - exact).max() < 1e-5
