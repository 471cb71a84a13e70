"""Our denoising loop against transformers' generate, live, both with the same random draws."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mlx_diffusiongemma.model.transformer import DiffusionGemma
from tests.parity.facts import TOLERANCE
from tests.parity.ours import build_ours
from tests.parity.recording import Recording, expected_tokens, replay
from tests.parity.reference import build_reference, record_generation
from tests.parity.sampler_cases import SAMPLER_CASES, STEPS, SamplerCase

pytestmark = [
    pytest.mark.reference,
    # torch warns of its own code when its compiler is imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

by_name = pytest.mark.parametrize("sampler_case", SAMPLER_CASES, ids=lambda case: case.name)


@cache
def models(sampler_case: SamplerCase) -> tuple[Any, DiffusionGemma]:
    return build_reference(sampler_case.case), build_ours(sampler_case.case)


@cache
def record(sampler_case: SamplerCase, eos: tuple[int, ...] = ()) -> Recording:
    import torch

    torch.manual_seed(sampler_case.seed)
    return record_generation(
        models(sampler_case)[0],
        sampler_case.case.ids(1, sampler_case.case.prompt),
        sampler_case.settings,
        sampler_case.max_tokens,
        list(eos),
    )


def compare(sampler_case: SamplerCase, eos: tuple[int, ...]) -> Recording:
    recording = record(sampler_case, eos)
    case = sampler_case.case
    ours = replay(
        models(sampler_case)[1],
        case.ids(1, case.prompt),
        sampler_case.settings,
        sampler_case.max_tokens,
        list(eos),
        recording,
    )
    assert list(ours.finished.steps) == recording.steps
    assert ours.draws_left == 0
    assert ours.logits.shape == recording.logits.shape
    assert np.abs(ours.logits - recording.logits).max() <= TOLERANCE
    expected = expected_tokens(recording, sampler_case.max_tokens, list(eos))
    assert list(ours.finished.token_ids) == expected
    # Neither has encoded its last canvas.
    committed = (len(recording.steps) - 1) * case.canvas
    assert ours.cache_length == recording.cache_length == case.prompt + committed
    return recording


@by_name
def test_the_same_draws_give_the_same_answer(sampler_case: SamplerCase) -> None:
    recording = compare(sampler_case, ())
    length = sampler_case.case.canvas
    # The reference rounds up to whole canvases, and so do our passes; only our ids are cut.
    assert len(recording.tokens) == -(-sampler_case.max_tokens // length) * length


@by_name
def test_an_end_token_inside_a_canvas(sampler_case: SamplerCase) -> None:
    """An id of the last canvas, made an end token: the same draws now stop behind it."""
    tokens = record(sampler_case).tokens
    place = min(len(tokens), sampler_case.max_tokens) - 3
    eos = (tokens[place] if place >= 0 else tokens[0], sampler_case.case.vocab + 7)
    recording = compare(sampler_case, eos)
    end = recording.tokens.index(eos[0])
    assert set(recording.tokens[end + 1 :]) <= {0}


def test_the_cases_stop_early_in_many_ways() -> None:
    """The comparison means something: every stability fires, at several different steps."""
    for stability in (0, 1, 2, 3):
        early = {
            steps
            for case in SAMPLER_CASES
            if case.settings.stability_threshold == stability
            for steps in record(case).steps
            if steps < case.settings.max_steps
        }
        assert len(early) >= 3, (stability, early)
        assert min(early) == stability + 1
    capped = [steps for case in SAMPLER_CASES for steps in record(case).steps if steps == STEPS]
    assert capped
