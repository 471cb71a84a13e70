"""Our network against transformers, live: every case through files, prefilled in several chunks."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tests.parity.cases import CASES, Case
from tests.parity.facts import TOLERANCE, assert_agree, differences, trial
from tests.parity.ours import build_ours, open_ours, our_facts
from tests.parity.reference import (
    PER_LAYER,
    PUBLISHED,
    build_reference,
    double_precision,
    reference_facts,
    save_reference,
)

pytestmark = [
    pytest.mark.reference,
    # torch warns of its own code when its compiler is imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_name
def test_all_facts_agree(case: Case, tmp_path: Path) -> None:
    reference = build_reference(case)
    theirs = reference_facts(reference, case)
    form = PER_LAYER if case.seed % 3 else PUBLISHED
    save_reference(reference, case, tmp_path, form)
    model = open_ours(tmp_path)
    for chunk in case.chunks():
        assert_agree(our_facts(model, case, chunk), theirs)
        prefix = model.prefill(trial(case).prompt, chunk=chunk)
        last = np.array(model.next_token_logits(prefix))
        assert np.abs(last - theirs.ar_logits[-1]).max() <= TOLERANCE


@by_name
def test_rounding_is_well_below_the_tolerance(case: Case, tmp_path: Path) -> None:
    """Against transformers in float64, transformers and we are both closer than we ask for."""
    reference = build_reference(case)
    save_reference(reference, case, tmp_path, PER_LAYER)
    single = reference_facts(reference, case)
    with double_precision():
        exact = reference_facts(reference.double(), case)
    ours = our_facts(open_ours(tmp_path), case)
    assert max(differences(single, exact).values()) < TOLERANCE / 2
    assert max(differences(ours, exact).values()) < TOLERANCE / 2


@by_name
def test_routers_choose_the_same_experts(case: Case) -> None:
    """For 200 random states in every layer: the same experts, with the same weights."""
    import torch

    reference, ours = build_reference(case), build_ours(case)
    states = np.random.RandomState(case.seed).normal(0, 3, (200, case.hidden)).astype(np.float32)
    for number, layer in enumerate(ours.layers):
        with torch.no_grad():
            router = reference.model.decoder.layers[number].router
            _, weights, experts = router(torch.from_numpy(states))
        mine = [np.array(array) for array in layer.router(mx.array(states))]
        order, mine_order = experts.numpy().argsort(-1), mine[0].argsort(-1)
        chosen = np.take_along_axis(mine[0].astype(np.int64), mine_order, -1)
        assert (chosen == np.take_along_axis(experts.numpy(), order, -1)).all()
        gap = np.take_along_axis(mine[1], mine_order, -1) - np.take_along_axis(
            weights.numpy(), order, -1
        )
        assert np.abs(gap).max() < 1e-5


@pytest.mark.parametrize("form", [PER_LAYER, PUBLISHED])
def test_both_config_forms_give_the_same_model(form: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "small-full-heads")
    reference = build_reference(case)
    save_reference(reference, case, tmp_path, form)
    assert_agree(our_facts(open_ours(tmp_path), case), reference_facts(reference, case))
