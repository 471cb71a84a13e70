"""What a step needs to know of its logits: the prediction and the uncertainty of each row."""

from __future__ import annotations

import mlx.core as mx

_BLOCK = 512


def row_entropy(logits: mx.array) -> mx.array:
    """Entropy in nats of softmax over each row: (L, V) float32 -> (L,). 0 log 0 counts as 0."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    weights = mx.exp(shifted)
    total = _row_sum(weights)
    return mx.log(total) - _row_sum(weights * shifted) / total


def token_probability(logits: mx.array, ids: mx.array) -> mx.array:
    """Softmax probability of ids (L,) in each row of logits (L, V)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = mx.take_along_axis(shifted, ids[:, None], axis=-1)[:, 0]
    return mx.exp(chosen) / _row_sum(mx.exp(shifted))


def _row_sum(x: mx.array) -> mx.array:
    """Sums of the rows of x (L, V), block by block.

    On the CPU mlx adds a row up value by value: over 262,144 of them beside one of 1 the plain sum
    (logsumexp too) is off by half a percent, as much as the stopping rule's whole threshold.
    """
    rows, width = x.shape
    if width % _BLOCK:
        x = mx.pad(x, [(0, 0), (0, -width % _BLOCK)])
    return x.reshape(rows, -1, _BLOCK).sum(axis=-1).sum(axis=-1)
