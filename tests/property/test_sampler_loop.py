"""The loop with any scripted model: lengths, ends, reasons and events always fit together."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_diffusiongemma.diffusion.denoise import generate
from mlx_diffusiongemma.diffusion.draws import KeyDraws
from mlx_diffusiongemma.diffusion.events import CanvasDone, Finished, Step
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings, SamplerName
from tests.unit.diffusion.scripted import ScriptedModel

VOCAB = 9


@st.composite
def knobs(draw: st.DrawFn) -> DiffusionSettings:
    temperature = st.just(0.0) | st.floats(1e-6, 2)
    t_min, t_max = sorted(draw(st.tuples(temperature, temperature)))
    sampler: SamplerName = draw(st.sampled_from(["entropy-bound", "confidence"]))
    return DiffusionSettings(
        max_steps=draw(st.integers(1, 6)),
        t_min=t_min,
        t_max=t_max,
        sampler=sampler,
        entropy_bound=draw(st.floats(1e-3, 20)),
        reveal_threshold=draw(st.floats(0, 1)),
        proposal_temperature=draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
        stability_threshold=draw(st.integers(0, 4)),
        confidence_threshold=draw(st.floats(0, 3)),
    )


@settings(max_examples=60)
@given(
    knobs(),
    st.integers(1, 5),
    st.integers(1, 17),
    st.integers(0, 30),
    st.sets(st.integers(0, VOCAB - 1), max_size=2),
    st.integers(0, 2**32 - 1),
)
def test_the_answer_fits_its_events(
    chosen: DiffusionSettings, length: int, max_tokens: int, room: int, ends: set[int], seed: int
) -> None:
    random = np.random.RandomState(seed)
    script = random.normal(0, 6, (40, length, VOCAB)).astype(np.float32)
    model = ScriptedModel(script, room=room, vocab=VOCAB)
    events = list(generate(model, chosen, KeyDraws(seed), max_tokens=max_tokens, stop_ids=ends))
    finished = events[-1]
    assert isinstance(finished, Finished)
    done = [event for event in events if isinstance(event, CanvasDone)]
    steps = [event for event in events if isinstance(event, Step)]
    ids = finished.token_ids

    assert ids == tuple(token for event in done for token in event.token_ids)
    assert len(ids) <= max_tokens
    assert finished.steps == tuple(event.steps for event in done)
    assert sum(finished.steps) == len(steps) == len(model.canvases)
    assert not any(token in ends for token in ids[:-1])
    if finished.reason == "stop":
        assert ids[-1] in ends
    elif finished.reason == "length":
        assert len(ids) == max_tokens and ids[-1] not in ends
    else:
        assert model.room() < length and len(ids) < max_tokens
    if ids:
        assert len(model.committed) == len(done) - (finished.reason != "context")

    for event in done:
        own = [step for step in steps if step.canvas == event.canvas]
        assert [step.step for step in own] == list(range(1, event.steps + 1))
        assert event.steps <= chosen.max_steps
        assert tuple(own[-1].draft[: len(event.token_ids)].tolist()) == event.token_ids
        assert event.converged == own[-1].converged
        assert not any(step.converged for step in own[:-1])
        assert event.converged or event.steps == chosen.max_steps
        for step in own:
            assert step.accepted.any() and np.isfinite(step.entropies).all()
            assert (step.entropies >= 0).all()
            assert ((step.draft >= 0) & (step.draft < VOCAB)).all()
    for canvas in model.canvases:
        assert all(0 <= token < VOCAB for token in canvas)


@settings(max_examples=30)
@given(knobs(), st.integers(0, 2**32 - 1))
def test_the_same_seed_repeats_the_answer(chosen: DiffusionSettings, seed: int) -> None:
    script = np.random.RandomState(seed).normal(0, 3, (20, 4, VOCAB)).astype(np.float32)
    runs = []
    for _ in range(2):
        model = ScriptedModel(script, vocab=VOCAB)
        runs.append(list(generate(model, chosen, KeyDraws(seed), max_tokens=9, stop_ids=()))[-1])
        runs.append(model.canvases)  # type: ignore[arg-type]
    assert runs[:2] == runs[2:]
