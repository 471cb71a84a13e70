"""Samplers: which proposals of a step enter the next canvas, and what the rest becomes.

A sampler is created per canvas. Every position that is not accepted gets a fresh random id.
"""

from __future__ import annotations

from typing import Protocol

import mlx.core as mx

from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.diffusion.statistics import token_probability


class Sampler(Protocol):
    """Decides what of a step's proposals is taken over."""

    def accept(
        self, logits: mx.array, entropies: mx.array, proposals: mx.array, *, last: bool
    ) -> mx.array:
        """Boolean (L,): positions whose proposal enters the next canvas."""
        ...

    def canvas(self, proposals: mx.array, renoise: mx.array) -> mx.array:
        """The next canvas (L,) after the latest `accept`."""
        ...

    def finished(self) -> mx.array:
        """Boolean scalar: nothing is left to decide, so the canvas is done."""
        ...


class EntropyBoundSampler:
    """The reference's sampler: accept the surest positions while their joint doubt is bounded.

    In ascending order of entropy, position k is accepted when the entropies strictly before it sum
    to at most `entropy_bound` nats; so the surest one always is. Acceptance is not sticky.
    """

    def __init__(self, entropy_bound: float) -> None:
        self.entropy_bound = entropy_bound
        self._accepted: mx.array | None = None

    def accept(
        self, logits: mx.array, entropies: mx.array, proposals: mx.array, *, last: bool
    ) -> mx.array:
        order = mx.argsort(entropies)
        ascending = entropies[order]
        within = mx.cumsum(ascending) - ascending <= self.entropy_bound
        self._accepted = mx.put_along_axis(mx.zeros(within.shape, mx.bool_), order, within, axis=0)
        return self._accepted

    def canvas(self, proposals: mx.array, renoise: mx.array) -> mx.array:
        assert self._accepted is not None
        return mx.where(self._accepted, proposals, renoise)

    def finished(self) -> mx.array:
        return mx.array(False)


class ConfidenceSampler:
    """Reveals proposals whose probability reaches a threshold and keeps them from then on.

    At least one position is revealed per step, all that are left on the last. The canvas is done
    when every position is revealed. (The default sampler of mlx-vlm; not the reference's.)
    """

    def __init__(self, threshold: float, length: int) -> None:
        self.threshold = threshold
        self._revealed = mx.zeros((length,), mx.bool_)
        self._kept = mx.zeros((length,), mx.int32)

    def accept(
        self, logits: mx.array, entropies: mx.array, proposals: mx.array, *, last: bool
    ) -> mx.array:
        hidden = mx.logical_not(self._revealed)
        if last:
            chosen = hidden
        else:
            confidence = token_probability(logits, proposals)
            chosen = hidden & (confidence >= self.threshold)
            surest = mx.argmax(mx.where(hidden, confidence, -1.0))
            forced = hidden & (mx.arange(hidden.shape[0]) == surest)
            chosen = mx.where(chosen.any(), chosen, forced)
        self._kept = mx.where(chosen, proposals, self._kept)
        self._revealed = self._revealed | chosen
        return self._revealed

    def canvas(self, proposals: mx.array, renoise: mx.array) -> mx.array:
        return mx.where(self._revealed, self._kept, renoise)

    def finished(self) -> mx.array:
        return self._revealed.all()


def make_sampler(settings: DiffusionSettings, length: int) -> Sampler:
    """A fresh sampler for one canvas of `length` positions."""
    if settings.sampler == "confidence":
        return ConfidenceSampler(settings.reveal_threshold, length)
    return EntropyBoundSampler(settings.entropy_bound)
