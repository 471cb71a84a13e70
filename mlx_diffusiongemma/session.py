"""A model that holds a prompt: what the denoising loop talks to, and reuse of earlier prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlx_diffusiongemma.model.cache import Prefix
from mlx_diffusiongemma.model.transformer import PREFILL_CHUNK, DiffusionGemma


class Session:
    """One answer's view of the model: the prefix grows with every committed canvas."""

    def __init__(self, model: DiffusionGemma, prefix: Prefix) -> None:
        self.vocab_size = model.config.text.vocab_size
        self.canvas_length = model.config.canvas_length
        self.prefix = prefix
        self._model = model

    def logits(self, canvas: mx.array, previous: mx.array | None) -> mx.array:
        return self._model.canvas_logits(self.prefix, canvas, previous)

    def commit(self, canvas: mx.array) -> None:
        _, self.prefix = self._model.encode(canvas, self.prefix)
        mx.eval(*self.prefix.arrays)

    def room(self) -> int:
        return self._model.config.text.max_position_embeddings - self.prefix.length


@dataclass(frozen=True)
class _Snapshot:
    ids: tuple[int, ...]
    prefix: Prefix


class PromptReuse:
    """Keeps the latest prompt's prefix so that the next turn need not encode it again.

    Snapshots are taken only at multiples of the prefill chunk. A reused prompt is therefore encoded
    with exactly the operations of a fresh one, and gives the same bits.
    """

    def __init__(self) -> None:
        self._snapshot: _Snapshot | None = None

    def prefill(
        self,
        model: DiffusionGemma,
        ids: Sequence[int],
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Prefix, int]:
        """The prefix of `ids` and how many of its tokens were reused."""
        prefix, reused = self._longest(model, ids)
        aligned = len(ids) // PREFILL_CHUNK * PREFILL_CHUNK
        report = None if progress is None else lambda done, _: progress(reused + done, len(ids))
        if aligned > reused:
            prefix = model.prefill(ids[reused:aligned], prefix, progress=report)
        if aligned:
            self._snapshot = _Snapshot(tuple(ids[:aligned]), prefix)
        if aligned < len(ids):
            rest = ids[aligned:]
            prefix = model.prefill(rest, prefix)
            if progress is not None:
                progress(len(ids), len(ids))
        return prefix, reused

    def _longest(self, model: DiffusionGemma, ids: Sequence[int]) -> tuple[Prefix, int]:
        kept = self._snapshot
        if kept is None or len(kept.ids) > len(ids) or tuple(ids[: len(kept.ids)]) != kept.ids:
            return model.empty_prefix(), 0
        return kept.prefix, len(kept.ids)
