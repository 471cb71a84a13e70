"""The loop over canvases with a scripted model: ends, lengths, reasons, commits, context."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from mlx_diffusiongemma.diffusion.denoise import generate
from mlx_diffusiongemma.diffusion.events import CanvasDone, CanvasStarted, Event, Finished, Step
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from tests.unit.diffusion.scripted import CountingDraws, ScriptedModel, sure

EOS = 9
# One pass a canvas: whatever the model says is final.
ONE_PASS = DiffusionSettings(max_steps=1)


def run(
    model: ScriptedModel,
    max_tokens: int,
    stop_ids: Collection[int] = (EOS,),
    settings: DiffusionSettings = ONE_PASS,
) -> tuple[list[Event], Finished]:
    draws = CountingDraws()
    events = list(generate(model, settings, draws, max_tokens=max_tokens, stop_ids=stop_ids))
    assert isinstance(events[-1], Finished)
    return events, events[-1]


def canvases(*ids: list[int]) -> ScriptedModel:
    return ScriptedModel([sure(canvas) for canvas in ids])


def test_nothing_behind_the_end_token() -> None:
    model = canvases([1, 2, EOS, 5, 6])
    events, finished = run(model, 100)
    assert finished.token_ids == (1, 2, EOS)
    assert finished.reason == "stop"
    assert len(model.canvases) == 1 and model.committed == []
    done = [event for event in events if isinstance(event, CanvasDone)]
    assert [event.token_ids for event in done] == [(1, 2, EOS)]


def test_the_first_end_token_of_the_canvas_counts() -> None:
    _, finished = run(canvases([1, 7, 3, EOS, EOS]), 100, stop_ids=(EOS, 7))
    assert finished.token_ids == (1, 7)


@pytest.mark.parametrize("stop_ids", [(EOS,), [EOS], {EOS, 30}, frozenset({EOS})])
def test_any_collection_of_end_tokens(stop_ids: Collection[int]) -> None:
    assert run(canvases([EOS, 1]), 100, stop_ids)[1].token_ids == (EOS,)


def test_end_token_in_a_later_canvas() -> None:
    model = canvases([1, 2, 3], [4, EOS, 6])
    _, finished = run(model, 100)
    assert finished.token_ids == (1, 2, 3, 4, EOS)
    assert finished.steps == (1, 1)
    assert model.committed == [[1, 2, 3]]


@pytest.mark.parametrize("max_tokens", [1, 15, 16, 17, 33])
def test_exactly_the_tokens_asked_for(max_tokens: int) -> None:
    model = ScriptedModel([sure(list(range(16)))])
    _, finished = run(model, max_tokens, stop_ids=())
    assert len(finished.token_ids) == max_tokens
    assert finished.reason == "length"
    needed = -(-max_tokens // 16)
    assert len(model.canvases) == needed
    assert len(model.committed) == needed - 1  # the last canvas is encoded by nobody


def test_end_token_as_the_last_of_its_canvas() -> None:
    model = canvases([1, 2, EOS])
    _, finished = run(model, 100)
    assert (finished.reason, finished.token_ids) == ("stop", (1, 2, EOS))
    assert len(model.canvases) == 1 and not model.committed


def test_end_token_exactly_at_the_limit() -> None:
    model = canvases([1, 2, EOS, 4])
    _, finished = run(model, 3)
    assert (finished.reason, finished.token_ids) == ("stop", (1, 2, EOS))
    assert len(model.canvases) == 1


def test_end_token_behind_the_limit_does_not_count() -> None:
    _, finished = run(canvases([1, 2, 3, EOS]), 3)
    assert (finished.reason, finished.token_ids) == ("length", (1, 2, 3))


def test_limit_exactly_at_the_end_of_a_canvas() -> None:
    model = canvases([1, 2, 3])
    _, finished = run(model, 6)
    assert (finished.reason, len(finished.token_ids)) == ("length", 6)
    assert len(model.canvases) == 2 and len(model.committed) == 1


def test_an_answer_that_ends_at_once() -> None:
    _, finished = run(canvases([EOS, 1, 1]), 100)
    assert (finished.reason, finished.token_ids, finished.steps) == ("stop", (EOS,), (1,))


def test_no_room_for_the_first_canvas() -> None:
    model = ScriptedModel([sure([1, 2, 3])], room=2)
    events, finished = run(model, 100)
    assert (finished.reason, finished.token_ids, finished.steps) == ("context", (), ())
    assert len(events) == 1 and not model.canvases


@pytest.mark.parametrize(("room", "count"), [(3, 1), (5, 1), (6, 2), (8, 2), (9, 3)])
def test_whole_canvases_until_the_context_is_full(room: int, count: int) -> None:
    model = ScriptedModel([sure([1, 2, 3])], room=room)
    _, finished = run(model, 100)
    assert finished.reason == "context"
    assert len(finished.token_ids) == 3 * count
    assert len(model.canvases) == count


def test_the_limit_wins_over_the_context() -> None:
    _, finished = run(ScriptedModel([sure([1, 2, 3])], room=3), 3)
    assert finished.reason == "length"


def test_order_of_events() -> None:
    settings = DiffusionSettings(max_steps=5, stability_threshold=1)
    events, _ = run(canvases([1, 2, 3]), 4, settings=settings)
    kinds = [CanvasStarted, Step, Step, CanvasDone]
    assert [type(event) for event in events] == [*kinds, *kinds, Finished]
    numbers = [event.canvas for event in events if not isinstance(event, Finished)]
    assert numbers == [1] * 4 + [2] * 4
    first, last = events[0], events[-2]
    assert isinstance(first, CanvasStarted) and first.length == 3
    assert isinstance(last, CanvasDone)
    assert last.token_ids == (1,) and last.steps == 2 and last.converged


def test_capped_canvas_is_told_apart() -> None:
    settings = DiffusionSettings(max_steps=3, stability_threshold=3)
    events, _ = run(canvases([1, 2, 3]), 3, settings=settings)
    done = events[-2]
    assert isinstance(done, CanvasDone)
    assert done.steps == 3 and not done.converged


def test_every_canvas_starts_without_a_signal_and_with_new_noise() -> None:
    settings = DiffusionSettings(max_steps=2, stability_threshold=5)
    model = canvases([1, 2, 3])
    run(model, 9, settings=settings)
    assert [signal is None for signal in model.previous] == [True, False] * 3
    starts = model.canvases[::2]
    assert len({tuple(canvas) for canvas in starts}) == 3


def test_stability_does_not_carry_over_to_the_next_canvas() -> None:
    settings = DiffusionSettings(max_steps=9, stability_threshold=2)
    _, finished = run(canvases([1, 2, 3]), 9, settings=settings)
    assert finished.steps == (3, 3, 3)


def test_the_prediction_is_committed_not_the_noise() -> None:
    settings = DiffusionSettings(max_steps=2)
    model = ScriptedModel([sure([1, 2, 3], peak=0.5)])
    run(model, 6, settings=settings)
    assert model.committed == [[1, 2, 3]]
    assert any(max(canvas) >= 20 for canvas in model.canvases)  # noise was on the canvas
