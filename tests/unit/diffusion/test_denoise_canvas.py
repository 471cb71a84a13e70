"""One canvas through the loop, with a scripted model: order, signals, and what is committed."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_diffusiongemma.diffusion.denoise import denoise_canvas
from mlx_diffusiongemma.diffusion.events import Step
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.errors import ModelError
from tests.unit.diffusion.scripted import CountingDraws, ScriptedModel, sure


def run(model: ScriptedModel, draws: CountingDraws | None = None, **settings: object) -> list[Step]:
    chosen = DiffusionSettings(**settings)  # type: ignore[arg-type]
    return list(denoise_canvas(model, chosen, draws or CountingDraws(), number=3))


def test_draws_come_in_the_references_order() -> None:
    draws = CountingDraws()
    run(ScriptedModel([sure([1, 2])]), draws, max_steps=5, stability_threshold=1)
    # A starting canvas; then per step, the stopping one included, a proposal and renoise ids.
    assert draws.log == ["uniform", "categorical", "uniform", "categorical", "uniform"]


def test_first_pass_sees_the_starting_canvas_and_no_signal() -> None:
    model = ScriptedModel([sure([1, 2])])
    run(model, max_steps=3)
    assert model.canvases[0] == [20, 20]
    assert model.previous[0] is None


def test_the_signal_is_the_logits_after_temperature() -> None:
    first, second = sure([1, 2], peak=3.0), sure([2, 1], peak=5.0)
    model = ScriptedModel([first, second, second])
    run(model, max_steps=3, t_min=0.4, t_max=0.8)
    assert model.previous[1] is not None and model.previous[2] is not None
    assert model.previous[1] == pytest.approx(first / 0.8, rel=1e-6)
    assert model.previous[2] == pytest.approx(second / (0.4 + 0.4 * 2 / 3), rel=1e-6)


def test_not_accepted_positions_get_fresh_noise_every_step() -> None:
    uncertain = np.concatenate([sure([1]), sure([2, 3], peak=0.0)])
    model = ScriptedModel([uncertain])
    steps = run(model, max_steps=4)
    assert all(step.accepted.tolist() == [True, True, False] or step.accepted[0] for step in steps)
    noise = [canvas[-1] for canvas in model.canvases]
    assert noise == [20, 21, 22, 23]


def test_capped_canvas_ends_with_the_prediction_not_with_noise() -> None:
    """The last step's argmax is the result; samples and renoise ids are not."""
    drafts = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    model = ScriptedModel([sure(ids, peak=0.5) for ids in drafts])
    steps = run(model, CountingDraws(propose=lambda _: [30, 30, 30]), max_steps=3)
    assert [step.draft.tolist() for step in steps] == drafts
    assert [step.converged for step in steps] == [False] * 3
    assert steps[-1].step == steps[-1].max_steps == 3


def test_one_step() -> None:
    model = ScriptedModel([sure([5, 6], peak=0.1)])
    steps = run(model, max_steps=1)
    assert len(steps) == 1 and len(model.canvases) == 1
    assert steps[0].draft.tolist() == [5, 6]
    assert steps[0].temperature == 0.8
    assert not steps[0].stable and not steps[0].converged


@pytest.mark.parametrize("stability", [0, 1, 2, 3])
def test_stops_at_the_first_possible_step(stability: int) -> None:
    steps = run(ScriptedModel([sure([1, 2])]), max_steps=9, stability_threshold=stability)
    assert len(steps) == stability + 1
    assert [step.converged for step in steps] == [False] * stability + [True]


@pytest.mark.parametrize("confidence", [1e-4, 0.005, 0.5, 3.0])
def test_confidence_threshold_is_against_the_mean_entropy(confidence: float) -> None:
    """Peaks fall apart until the mean entropy passes the threshold."""
    script = [sure([1, 2], peak=peak) for peak in (1.0, 3.0, 5.0, 7.0, 10.0, 20.0)]
    steps = run(
        ScriptedModel(script), max_steps=6, stability_threshold=0, confidence_threshold=confidence
    )
    means = [float(step.entropies.mean()) for step in steps]
    assert means[-1] < confidence
    assert all(mean >= confidence for mean in means[:-1])


def test_stopping_on_the_last_step_counts_as_converged() -> None:
    steps = run(ScriptedModel([sure([1, 2])]), max_steps=2, stability_threshold=1)
    assert len(steps) == 2 and steps[-1].converged


def test_temperature_zero_needs_no_draws_and_scales_nothing() -> None:
    logits = sure([1, 2], peak=2.0)
    draws, model = CountingDraws(), ScriptedModel([logits])
    steps = run(model, draws, max_steps=3, t_min=0.0, t_max=0.0)
    assert "categorical" not in draws.log
    assert model.previous[1] == pytest.approx(logits)
    assert steps[0].temperature == 0.0
    assert np.isfinite(steps[0].entropies).all()


def test_proposal_temperature_changes_only_the_draw() -> None:
    seen = []

    def propose(logits: np.ndarray) -> list[int]:
        seen.append(logits)
        return [1, 2]

    logits = sure([1, 2], peak=2.0)
    model = ScriptedModel([logits])
    steps = run(model, CountingDraws(propose), max_steps=2, proposal_temperature=0.5)
    assert seen[0] == pytest.approx(logits / 0.8 / 0.5, rel=1e-6)
    assert model.previous[1] == pytest.approx(logits / 0.8, rel=1e-6)
    plain = run(ScriptedModel([logits]), max_steps=2)
    assert steps[0].entropies == pytest.approx(plain[0].entropies)


def test_proposal_temperature_zero_proposes_the_prediction() -> None:
    draws, model = CountingDraws(), ScriptedModel([sure([1, 2])])
    run(model, draws, max_steps=3, stability_threshold=2, proposal_temperature=0.0)
    assert "categorical" not in draws.log
    assert model.canvases[1] == [1, 2]


def test_events_describe_the_step() -> None:
    step = run(ScriptedModel([sure([1, 2])]), max_steps=4)[0]
    assert (step.canvas, step.step, step.max_steps) == (3, 1, 4)
    assert step.draft.dtype == np.int32 and step.draft.shape == (2,)
    assert step.entropies.dtype == np.float32 and step.entropies.shape == (2,)
    assert step.accepted.dtype == np.bool_ and step.accepted.shape == (2,)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_told_and_makes_no_answer(bad: float) -> None:
    """Damaged weights, or a range too narrow: argmax would make it a row of <pad>."""
    logits = sure([1, 2])
    logits[1, 3] = bad
    with pytest.raises(ModelError, match="not numbers"):
        run(ScriptedModel([logits]), max_steps=3)
