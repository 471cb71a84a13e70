"""Stand-ins for the denoising loop's partners: a model that reads its logits from a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

VOCAB = 32


def sure(ids: Sequence[int], vocab: int = VOCAB, peak: float = 40.0) -> npt.NDArray[np.float32]:
    """Logits (L, V) that are certain of `ids` (with peak 0: uniform)."""
    logits = np.zeros((len(ids), vocab), np.float32)
    logits[np.arange(len(ids)), ids] = peak
    return logits


class ScriptedModel:
    """A `CanvasModel` whose k-th pass returns script[k] (the last one for ever).

    Keeps what it was asked: `canvases`, `previous` and `committed`.
    """

    def __init__(
        self, script: Iterable[npt.NDArray[np.float32]], *, room: int = 10_000, vocab: int = VOCAB
    ) -> None:
        self.script = [np.asarray(logits) for logits in script]
        self.vocab_size = vocab
        self.canvas_length = len(self.script[0])
        self.canvases: list[list[int]] = []
        self.previous: list[npt.NDArray[np.float32] | None] = []
        self.committed: list[list[int]] = []
        self._room = room

    def logits(self, canvas: mx.array, previous: mx.array | None) -> mx.array:
        assert canvas.shape == (self.canvas_length,)
        self.canvases.append(np.array(canvas).tolist())
        self.previous.append(None if previous is None else np.array(previous))
        return mx.array(self.script[min(len(self.canvases), len(self.script)) - 1])

    def commit(self, canvas: mx.array) -> None:
        self.committed.append(np.array(canvas).tolist())
        self._room -= self.canvas_length

    def room(self) -> int:
        return self._room


class CountingDraws:
    """Random ids that can be told apart: uniform ones are 20, 21, ... in every position.

    Proposals are the most likely ids unless `propose` says otherwise. `log` holds the order.
    """

    def __init__(self, propose: Callable[[npt.NDArray[Any]], Sequence[int]] | None = None) -> None:
        self.log: list[str] = []
        self._propose = propose
        self._next = 20

    def uniform(self, length: int, vocab_size: int) -> mx.array:
        self.log.append("uniform")
        self._next += 1
        assert self._next - 1 < vocab_size
        return mx.full((length,), self._next - 1, dtype=mx.int32)

    def categorical(self, logits: mx.array) -> mx.array:
        self.log.append("categorical")
        if self._propose is None:
            return mx.argmax(logits, axis=-1).astype(mx.int32)
        return mx.array(list(self._propose(np.array(logits))), dtype=mx.int32)
