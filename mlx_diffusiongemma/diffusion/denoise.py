"""The loop: canvases of random ids in, final token ids out, told as events.

Source: the algorithm of the reference's `generate`, batch of one, with two differences. Exactly
`max_tokens` ids are emitted (the reference rounds up to whole canvases), and the caller decides
whether the last canvas is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

import mlx.core as mx
import numpy as np

from mlx_diffusiongemma.diffusion.draws import Draws
from mlx_diffusiongemma.diffusion.events import (
    CanvasDone,
    CanvasStarted,
    Event,
    Finished,
    FinishReason,
    Step,
)
from mlx_diffusiongemma.diffusion.sampler import make_sampler
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.diffusion.statistics import row_entropy
from mlx_diffusiongemma.diffusion.stopping import StableAndConfident
from mlx_diffusiongemma.errors import ModelError


class CanvasModel(Protocol):
    """What the loop needs of a model that already holds a prompt."""

    vocab_size: int
    canvas_length: int

    def logits(self, canvas: mx.array, previous: mx.array | None) -> mx.array:
        """Soft-capped float32 logits (L, V) of canvas (L,); `previous` as in self-conditioning."""
        ...

    def commit(self, canvas: mx.array) -> None:
        """Appends a finished canvas (L,) to the prompt."""
        ...

    def room(self) -> int:
        """How many more positions the context has."""
        ...


def denoise_canvas(
    model: CanvasModel, settings: DiffusionSettings, draws: Draws, number: int
) -> Iterator[Step]:
    """Denoises canvas `number`; the last step's draft is the result."""
    length = model.canvas_length
    canvas = draws.uniform(length, model.vocab_size)  # (L,)
    sampler = make_sampler(settings, length)
    stopping = StableAndConfident(settings.stability_threshold, settings.confidence_threshold)
    previous: mx.array | None = None
    for step in range(1, settings.max_steps + 1):
        temperature = settings.temperature(step)
        logits = model.logits(canvas, previous)  # (L, V)
        if temperature > 0:
            logits = logits / temperature
        proposals = _propose(logits, settings.proposal_temperature * temperature, settings, draws)
        prediction = mx.argmax(logits, axis=-1).astype(mx.int32)
        entropies = row_entropy(logits)
        accepted = sampler.accept(logits, entropies, proposals, last=step == settings.max_steps)
        canvas = sampler.canvas(proposals, draws.uniform(length, model.vocab_size))
        stable, stop = stopping.update(prediction, entropies)
        stop = stop | sampler.finished()
        mx.eval(prediction, entropies, accepted, stable, stop, canvas, logits)
        doubts = np.array(entropies)
        if not np.isfinite(doubts).all():
            raise ModelError(
                "The model computes values that are not numbers.",
                "Its weights may be damaged; half precision may be too narrow: try float32.",
            )
        yield Step(
            canvas=number,
            step=step,
            max_steps=settings.max_steps,
            temperature=temperature,
            draft=np.array(prediction),
            entropies=doubts,
            accepted=np.array(accepted),
            stable=bool(stable.item()),
            converged=bool(stop.item()),
        )
        if stop.item():
            return
        previous = logits


def generate(
    model: CanvasModel,
    settings: DiffusionSettings,
    draws: Draws,
    *,
    max_tokens: int,
    stop_ids: Collection[int],
) -> Iterator[Event]:
    """Yields the events of an answer of at most `max_tokens` ids, ended by any of `stop_ids`.

    The final ids are cut at the first end token, which is kept. A canvas is committed only when
    another one follows.
    """
    emitted: list[int] = []
    steps: list[int] = []
    reason: FinishReason | None = None
    while reason is None:
        if model.room() < model.canvas_length:
            reason = "context"
            break
        number = len(steps) + 1
        yield CanvasStarted(number, model.canvas_length)
        event: Step | None = None
        for event in denoise_canvas(model, settings, draws, number):
            yield event
        assert event is not None
        steps.append(event.step)
        ids, reason = _cut(event.draft.tolist(), max_tokens - len(emitted), stop_ids)
        emitted += ids
        yield CanvasDone(number, tuple(ids), event.step, converged=event.converged)
        if reason is None:
            model.commit(mx.array(event.draft))
    yield Finished(reason, tuple(emitted), tuple(steps))


def _propose(
    logits: mx.array, temperature: float, settings: DiffusionSettings, draws: Draws
) -> mx.array:
    """One id per row. `logits` already carry the schedule's temperature."""
    if temperature == 0:
        return mx.argmax(logits, axis=-1).astype(mx.int32)
    if settings.proposal_temperature != 1:
        logits = logits / settings.proposal_temperature
    return draws.categorical(logits)


def _cut(
    ids: list[int], room: int, stop_ids: Collection[int]
) -> tuple[list[int], FinishReason | None]:
    """The ids of a canvas that are emitted, and why the answer ends here (None: it goes on)."""
    for i, token in enumerate(ids[:room]):
        if token in stop_ids:
            return ids[: i + 1], "stop"
    return ids[:room], "length" if len(ids) >= room else None
