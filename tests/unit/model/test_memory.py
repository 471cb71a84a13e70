"""Prefill memory is linear in the prompt: no N x N mask or score matrix, chunked or not."""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from mlx_diffusiongemma.model.attention import QUERY_BLOCK
from tests.parity.cases import Case
from tests.parity.ours import build_ours

CASE = Case(
    "memory",
    920,
    kinds="sf",
    hidden=16,
    intermediate=16,
    expert_width=8,
    heads=1,
    kv_heads=1,
    full_kv_heads=1,
    head_dim=4,
    full_head_dim=4,
    top_k=1,
    window=8,
)


SMALL, LARGE = 4096, 8192
CHUNK, AT_ONCE = 512, 1 << 20


@cache
def prefill_peak(count: int, chunk: int) -> int:
    """Bytes that a prefill of `count` tokens holds at its worst moment."""
    model, ids = build_ours(CASE), CASE.ids(1, count)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    prefix = model.prefill(ids, chunk=chunk)
    assert prefix.length == count
    return mx.get_peak_memory() - before


def test_grows_with_the_prompt_not_with_its_square() -> None:
    assert prefill_peak(LARGE, CHUNK) < 2.5 * prefill_peak(SMALL, CHUNK)


def test_no_array_holds_every_pair_of_tokens() -> None:
    """One byte a pair, for one layer alone, would already be more than everything together."""
    assert prefill_peak(LARGE, CHUNK) < LARGE**2


def test_a_prompt_at_once_holds_some_blocks_of_scores_and_no_square() -> None:
    """mlx keeps up to ten tasks, here blocks of queries, in flight."""
    block = QUERY_BLOCK * LARGE * 4
    assert prefill_peak(LARGE, AT_ONCE) < 12 * block < 4 * LARGE**2


def test_chunks_bound_the_peak() -> None:
    assert prefill_peak(LARGE, CHUNK) < prefill_peak(LARGE, AT_ONCE) / 1.5
