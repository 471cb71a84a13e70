"""A run of the reference's sampler with every draw it made, and its replay through our loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from mlx_diffusiongemma.diffusion.denoise import generate
from mlx_diffusiongemma.diffusion.events import Finished
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.model.transformer import DiffusionGemma
from mlx_diffusiongemma.session import Session
from tests.parity.cases import Case


@dataclass(frozen=True)
class Recording:
    """What one call of the reference's generate did.

    tokens: all new ids, whole canvases, padded behind an end token. steps: passes per canvas.
    uniform (1 + steps per canvas, L) and categorical (steps, L): the draws in order. logits
    (steps, L, V): after temperature.
    """

    tokens: list[int]
    steps: list[int]
    cache_length: int
    uniform: npt.NDArray[np.int32]
    categorical: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]


class RecordedDraws:
    """Replays recorded ids in order, and keeps the logits that each proposal was drawn from."""

    def __init__(self, uniform: Any, categorical: Any) -> None:
        self._uniform = list(np.asarray(uniform, dtype=np.int32))
        self._categorical = list(np.asarray(categorical, dtype=np.int32))
        self.logits: list[npt.NDArray[np.float32]] = []

    def uniform(self, length: int, vocab_size: int) -> mx.array:
        ids = self._uniform.pop(0)
        assert ids.shape == (length,)
        return mx.array(ids)

    def categorical(self, logits: mx.array) -> mx.array:
        self.logits.append(np.array(logits))
        return mx.array(self._categorical.pop(0))

    @property
    def left(self) -> int:
        """How many recorded draws were not asked for."""
        return len(self._uniform) + len(self._categorical)


@dataclass(frozen=True)
class Replay:
    """What our loop did with recorded draws; cache_length leaves out the last canvas."""

    finished: Finished
    cache_length: int
    logits: npt.NDArray[np.float32]
    draws_left: int


def replay(
    model: DiffusionGemma,
    prompt: list[int],
    settings: DiffusionSettings,
    max_tokens: int,
    eos: list[int],
    recording: Recording,
) -> Replay:
    """Runs our loop on the reference's draws."""
    draws = RecordedDraws(recording.uniform, recording.categorical)
    session = Session(model, model.prefill(prompt))
    events = list(generate(session, settings, draws, max_tokens=max_tokens, stop_ids=set(eos)))
    finished = events[-1]
    assert isinstance(finished, Finished)
    logits = np.array(draws.logits, dtype=np.float32)
    return Replay(finished, session.prefix.length, logits, draws.left)


def expected_tokens(recording: Recording, max_tokens: int, eos: list[int]) -> list[int]:
    """The reference's ids as we emit them: cut to the limit and behind the first end token."""
    tokens = recording.tokens[:max_tokens]
    ends = [i for i, token in enumerate(tokens) if token in eos]
    return tokens[: ends[0] + 1] if ends else tokens


@dataclass(frozen=True)
class SamplerCase:
    """A configuration, the knobs of a run, and the draws' seed."""

    case: Case
    settings: DiffusionSettings
    max_tokens: int
    eos: tuple[int, ...] = ()
    seed: int = 0

    @property
    def name(self) -> str:
        return self.case.name

    def with_settings(self, **changes: Any) -> SamplerCase:
        return replace(self, settings=replace(self.settings, **changes))
