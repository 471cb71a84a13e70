"""Randomness as an argument: where canvases, proposals and renoise ids come from.

The loop asks in the reference's order: one starting canvas, then per step one categorical draw per
position and one uniform id per position. Tests pass recorded draws in place of `KeyDraws`.
"""

from __future__ import annotations

from typing import Protocol

import mlx.core as mx


class Draws(Protocol):
    """A source of random token ids."""

    def uniform(self, length: int, vocab_size: int) -> mx.array:
        """Ids (length,), uniform over the whole vocabulary: a starting canvas or renoise."""
        ...

    def categorical(self, logits: mx.array) -> mx.array:
        """One id per row of logits (L, V), drawn from softmax(logits)."""
        ...


class KeyDraws:
    """Draws from a seeded key: the same seed gives the same ids, whatever else uses mx.random."""

    def __init__(self, seed: int) -> None:
        self._key = mx.random.key(seed)

    def uniform(self, length: int, vocab_size: int) -> mx.array:
        return mx.random.randint(0, vocab_size, (length,), dtype=mx.int32, key=self._next())

    def categorical(self, logits: mx.array) -> mx.array:
        return mx.random.categorical(logits, key=self._next()).astype(mx.int32)

    def _next(self) -> mx.array:
        self._key, key = mx.random.split(self._key)
        return key
