"""Our network and loop against the golden files: transformers' results without transformers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity.cases import Case
from tests.parity.facts import TOLERANCE, assert_agree
from tests.parity.golden import FOLDER, GOLDEN_RUNS, LOGIT_CASES, load_facts, load_run
from tests.parity.ours import build_ours, our_facts
from tests.parity.recording import expected_tokens, replay
from tests.parity.sampler_cases import SamplerCase


@pytest.mark.parametrize("case", LOGIT_CASES, ids=lambda case: case.name)
def test_facts(case: Case) -> None:
    model = build_ours(case)
    for chunk in case.chunks():
        assert_agree(our_facts(model, case, chunk), load_facts(case))


@pytest.mark.parametrize("run", GOLDEN_RUNS, ids=lambda run: run.name)
def test_run(run: SamplerCase) -> None:
    recording, eos = load_run(run)
    prompt = run.case.ids(1, run.case.prompt)
    model = build_ours(run.case)
    ours = replay(model, prompt, run.settings, run.max_tokens, list(eos), recording)
    assert list(ours.finished.steps) == recording.steps
    expected = expected_tokens(recording, run.max_tokens, list(eos))
    assert list(ours.finished.token_ids) == expected
    assert ours.finished.reason == ("stop" if eos else "length")
    assert ours.cache_length == recording.cache_length
    assert ours.draws_left == 0
    assert np.abs(ours.logits - recording.logits).max() <= TOLERANCE


def test_runs_cover_what_they_should() -> None:
    recordings = {run: load_run(run)[0] for run in GOLDEN_RUNS}
    for stability in (0, 1, 2, 3):
        assert any(
            run.settings.stability_threshold == stability
            and min(recording.steps) < run.settings.max_steps
            for run, recording in recordings.items()
        )
    assert any(min(r.steps) == run.settings.max_steps > 1 for run, r in recordings.items())
    assert any(load_run(run)[1] for run in GOLDEN_RUNS)
    assert any(run.max_tokens % run.case.canvas for run in GOLDEN_RUNS)


def test_files_are_small_and_all_used() -> None:
    files = list(FOLDER.glob("*"))
    assert len(files) == len(LOGIT_CASES) + len(GOLDEN_RUNS)
    assert sum(file.stat().st_size for file in files) < 400_000
