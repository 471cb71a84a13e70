"""What a step needs to know of its logits: the prediction and the uncertainty of each row."""

from __future__ import annotations

import mlx.core as mx


def row_entropy(logits: mx.array) -> mx.array:
    """Entropy in nats of softmax over each row: (L, V) float32 -> (L,). 0 log 0 counts as 0."""
    log_p = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return -(mx.exp(log_p) * log_p).sum(axis=-1)


def token_probability(logits: mx.array, ids: mx.array) -> mx.array:
    """Softmax probability of ids (L,) in each row of logits (L, V)."""
    chosen = mx.take_along_axis(logits, ids[:, None], axis=-1)[:, 0]
    return mx.exp(chosen - mx.logsumexp(logits, axis=-1))
