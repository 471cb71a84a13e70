"""The golden runs notice mistakes of the loop: each known wrong sampler strays from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.diffusion import denoise
from mlx_diffusiongemma.diffusion.sampler import EntropyBoundSampler
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.diffusion.statistics import row_entropy
from mlx_diffusiongemma.diffusion.stopping import StableAndConfident
from mlx_diffusiongemma.session import Session
from tests.parity.facts import TOLERANCE
from tests.parity.golden import GOLDEN_RUNS, load_run
from tests.parity.ours import build_ours
from tests.parity.recording import RecordedDraws, expected_tokens, replay
from tests.parity.sampler_cases import SamplerCase

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: list[Mutation] = []


def mutation(function: Mutation) -> Mutation:
    MUTATIONS.append(function)
    return function


def strays(run: SamplerCase) -> bool:
    """Whether our loop does anything else than the reference did with the same draws."""
    recording, eos = load_run(run)
    prompt = run.case.ids(1, run.case.prompt)
    try:
        ours = replay(
            build_ours(run.case), prompt, run.settings, run.max_tokens, list(eos), recording
        )
    except IndexError:  # asked for more draws than the reference made
        return True
    return (
        list(ours.finished.steps) != recording.steps
        or list(ours.finished.token_ids) != expected_tokens(recording, run.max_tokens, list(eos))
        or bool(np.abs(ours.logits - recording.logits).max() > 20 * TOLERANCE)
    )


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda value: value.__name__)
def test_is_noticed(mutate: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    assert any(strays(run) for run in GOLDEN_RUNS)


@mutation
def sticky_acceptance(patch: pytest.MonkeyPatch) -> None:
    real: Any = EntropyBoundSampler.accept

    def accept(self: Any, *args: Any, **kwargs: Any) -> mx.array:
        before = self._accepted
        now = real(self, *args, **kwargs)
        self._accepted = now if before is None else now | before
        return self._accepted

    patch.setattr(EntropyBoundSampler, "accept", accept)


@mutation
def bound_on_the_inclusive_sum(patch: pytest.MonkeyPatch) -> None:
    def accept(self: Any, logits: Any, entropies: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        order = mx.argsort(entropies)
        within = mx.cumsum(entropies[order]) <= self.entropy_bound
        self._accepted = within[mx.argsort(order)]
        return self._accepted

    patch.setattr(EntropyBoundSampler, "accept", accept)


@mutation
def entropy_in_bits(patch: pytest.MonkeyPatch) -> None:
    real = row_entropy
    patch.setattr(denoise, "row_entropy", lambda logits: real(logits) / np.log(2))


@mutation
def entropy_before_temperature(patch: pytest.MonkeyPatch) -> None:
    real = row_entropy
    patch.setattr(denoise, "row_entropy", lambda logits: real(logits * 0.6))


@mutation
def proposals_from_logits_before_temperature(patch: pytest.MonkeyPatch) -> None:
    real = denoise._propose
    patch.setattr(denoise, "_propose", lambda logits, *rest: real(logits * 0.6, *rest))


@mutation
def renoised_canvas_committed(patch: pytest.MonkeyPatch) -> None:
    """What goes into the prefix is what a next pass would have seen, not the prediction."""
    canvas: Any = EntropyBoundSampler.canvas
    commit: Any = Session.commit
    latest: list[mx.array] = []

    def remember(self: Any, proposals: mx.array, renoise: mx.array) -> mx.array:
        latest[:] = [canvas(self, proposals, renoise)]
        return latest[0]

    patch.setattr(EntropyBoundSampler, "canvas", remember)
    patch.setattr(Session, "commit", lambda self, ids: commit(self, latest[0]))


@mutation
def renoise_only_once(patch: pytest.MonkeyPatch) -> None:
    """Positions that are not accepted keep their first random ids."""
    real: Any = EntropyBoundSampler.canvas

    def canvas(self: Any, proposals: mx.array, renoise: mx.array) -> mx.array:
        self.noise = getattr(self, "noise", renoise)
        return real(self, proposals, self.noise)

    patch.setattr(EntropyBoundSampler, "canvas", canvas)


@mutation
def stability_one_short(patch: pytest.MonkeyPatch) -> None:
    real: Any = StableAndConfident.__init__

    def init(self: Any, stability: int, confidence: float) -> None:
        real(self, max(stability - 1, 0), confidence)

    patch.setattr(StableAndConfident, "__init__", init)


@mutation
def stability_one_long(patch: pytest.MonkeyPatch) -> None:
    real: Any = StableAndConfident.__init__

    def init(self: Any, stability: int, confidence: float) -> None:
        real(self, stability + 1, confidence)

    patch.setattr(StableAndConfident, "__init__", init)


@mutation
def schedule_one_step_ahead(patch: pytest.MonkeyPatch) -> None:
    def temperature(self: DiffusionSettings, step: int) -> float:
        return self.t_min + (self.t_max - self.t_min) * (self.max_steps - step) / self.max_steps

    patch.setattr(DiffusionSettings, "temperature", temperature)


@mutation
def self_conditioning_leaks_into_the_next_canvas(patch: pytest.MonkeyPatch) -> None:
    real: Any = Session.logits

    def logits(self: Any, canvas: mx.array, previous: mx.array | None) -> mx.array:
        self.kept = real(self, canvas, getattr(self, "kept", None))
        return self.kept

    patch.setattr(Session, "logits", logits)


@mutation
def no_self_conditioning(patch: pytest.MonkeyPatch) -> None:
    real: Any = Session.logits
    patch.setattr(Session, "logits", lambda self, canvas, previous: real(self, canvas, None))


@mutation
def canvas_never_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "commit", lambda self, canvas: None)


@mutation
def draws_in_another_order(patch: pytest.MonkeyPatch) -> None:
    """Renoise ids taken from the end of the recording."""

    def uniform(self: Any, length: int, vocab_size: int) -> mx.array:
        return mx.array(self._uniform.pop())

    patch.setattr(RecordedDraws, "uniform", uniform)
