"""Writes the golden files from transformers: `python -m tests.parity.make_golden`.

Needs torch and transformers (the `reference` extra). Refuses runs that rounding could turn.
"""

from __future__ import annotations

import torch

from tests.parity.golden import (
    FOLDER,
    GOLDEN_RUNS,
    LOGIT_CASES,
    load_facts,
    load_run,
    save_facts,
    save_run,
)
from tests.parity.margins import smallest_margin
from tests.parity.recording import Recording
from tests.parity.reference import build_reference, record_generation, reference_facts
from tests.parity.sampler_cases import SamplerCase

LEAST_MARGIN = 5e-4
LIMIT = 400_000  # bytes, all files together


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.npz"):
        path.unlink()
    for case in LOGIT_CASES:
        save_facts(case, reference_facts(build_reference(case), case))
        load_facts(case)
    for number, run in enumerate(GOLDEN_RUNS):
        plain = _record(run, ())
        # Every second run of whole canvases ends at an id it produced, inside its last one.
        eos = (plain.tokens[-3],) if number % 2 and run.max_tokens == len(plain.tokens) else ()
        recording = _record(run, eos) if eos else plain
        margin = smallest_margin(recording, run.settings)
        print(f"{run.name}: steps {recording.steps}, eos {eos}, margin {margin:.1e}")
        if margin < LEAST_MARGIN:
            raise SystemExit(f"{run.name} is too near a tie: choose another run")
        save_run(run, recording, eos)
        load_run(run)
    total = sum(path.stat().st_size for path in FOLDER.glob("*.npz"))
    print(f"{total} bytes")
    assert total < LIMIT


def _record(run: SamplerCase, eos: tuple[int, ...]) -> Recording:
    torch.manual_seed(run.seed)
    prompt = run.case.ids(1, run.case.prompt)
    reference = build_reference(run.case)
    return record_generation(reference, prompt, run.settings, run.max_tokens, list(eos))


if __name__ == "__main__":
    main()
