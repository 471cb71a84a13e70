"""The low-level face of the runtime: prefixes, canvas logits, commits, next-token logits."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma import Prefix, Runtime, UsageError


def _bytes(prefix: Prefix) -> list[bytes]:
    return [np.array(array).tobytes() for array in prefix.arrays]


def test_canvas_passes_leave_the_prefix_alone(runtime: Runtime) -> None:
    prefix = runtime.prefill(list(range(30)))
    before = _bytes(prefix)
    logits = runtime.canvas_logits(prefix, list(range(16)))
    again = runtime.canvas_logits(prefix, list(range(16)), self_conditioning=logits / 0.8)
    assert logits.dtype == again.dtype == mx.float32
    assert logits.shape == (16, runtime.config.text.vocab_size)
    assert _bytes(prefix) == before
    grown = runtime.commit(prefix, list(range(16)))
    assert (prefix.length, grown.length) == (30, 46)
    assert _bytes(prefix) == before


@pytest.mark.parametrize("length", [1, 5, 16, 40])
def test_canvas_of_any_length(runtime: Runtime, length: int) -> None:
    prefix = runtime.prefill([2, 105, 107])
    ids = mx.arange(length) + 120
    assert runtime.canvas_logits(prefix, ids).shape[0] == length


def test_commit_equals_prefill_and_next_token_reads_the_last(runtime: Runtime) -> None:
    ids = list(range(100, 160))
    whole = runtime.prefill(ids)
    parts = runtime.commit(runtime.prefill(ids[:44]), mx.array(ids[44:]))
    a, b = runtime.next_token_logits(whole), runtime.next_token_logits(parts)
    assert a.shape == (runtime.config.text.vocab_size,)
    assert float(mx.abs(a - b).max()) < 1e-4
    with pytest.raises(UsageError, match="just encoded"):
        runtime.next_token_logits(whole.trim(50))


@pytest.mark.parametrize("wrong", [[-1], [10**6], [[1, 2]], [1.5]])
def test_ids_that_are_no_ids(runtime: Runtime, wrong: list[int]) -> None:
    prefix = runtime.prefill([2])
    with pytest.raises(UsageError):
        runtime.canvas_logits(prefix, wrong)
    with pytest.raises(UsageError):
        runtime.prefill(wrong)


def test_wrong_shapes_are_named(runtime: Runtime) -> None:
    prefix = runtime.prefill([2])
    with pytest.raises(UsageError, match="at least one token"):
        runtime.canvas_logits(prefix, [])
    with pytest.raises(UsageError, match="self_conditioning"):
        runtime.canvas_logits(prefix, [5, 6], self_conditioning=mx.zeros((1, 3)))
