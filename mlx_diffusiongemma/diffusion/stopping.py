"""When a canvas is done: its prediction has stopped changing and its mean entropy is low."""

from __future__ import annotations

from collections import deque

import mlx.core as mx


class StableAndConfident:
    """The reference's adaptive stop, one instance per canvas.

    Stable: the last `stability` predictions all equal the current one (0: always stable; 1: two
    equal in a row). Confident: the mean entropy over the whole canvas is below the threshold.
    """

    def __init__(self, stability: int, confidence: float) -> None:
        self._stability = stability
        self._confidence = confidence
        self._history: deque[mx.array] = deque(maxlen=stability)

    def update(self, prediction: mx.array, entropies: mx.array) -> tuple[mx.array, mx.array]:
        """Takes in a step's argmax (L,) and entropies (L,); (stable, stop) as boolean scalars."""
        stable = mx.array(len(self._history) == self._stability)
        for earlier in self._history:
            stable = stable & (earlier == prediction).all()
        self._history.append(prediction)
        return stable, stable & (entropies.mean() < self._confidence)
