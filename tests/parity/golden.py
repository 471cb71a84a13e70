"""Files that hold what transformers computed, so that the same facts can be checked without it.

`make_golden` writes them; weights and prompts are not stored, they follow from the case's seed.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.parity.cases import CASES, Case
from tests.parity.facts import CanvasFacts, Facts
from tests.parity.recording import Recording
from tests.parity.sampler_cases import SAMPLER_CASES, SamplerCase

FOLDER = Path(__file__).parent / "golden"

LOGIT_CASES = tuple(
    case
    for case in CASES
    if case.name
    in {
        "released-order",
        "prompt-of-one",
        "window-below-canvas",
        "long-prompt",
        "three-of-eight",
        "small-full-heads",
        "low-softcap",
    }
)
# One of each stability that stops early, a run to the cap, lengths cut inside a canvas.
GOLDEN_RUNS = tuple(
    case for case in SAMPLER_CASES if case.seed in {3, 13, 20, 23, 31, 34, 50, 55, 56, 57, 58}
)


def save_facts(case: Case, facts: Facts) -> None:
    arrays: Any = facts.named()
    np.savez_compressed(FOLDER / f"logits-{case.name}.npz", **arrays)


def load_facts(case: Case) -> Facts:
    with np.load(FOLDER / f"logits-{case.name}.npz") as arrays:
        layers, canvases = range(len(case.kinds)), range(case.canvases)
        return Facts(
            arrays["ar_logits"],
            [arrays[f"keys_{i}"] for i in layers],
            [arrays[f"values_{i}"] for i in layers],
            [
                CanvasFacts(arrays[f"canvas_{i}_first"], arrays[f"canvas_{i}_second"])
                for i in canvases
            ],
        )


def save_run(run: SamplerCase, recording: Recording, eos: tuple[int, ...]) -> None:
    """Ids as bytes (they fit), logits as they are."""
    arrays: Any = {name: np.asarray(value) for name, value in asdict(recording).items()}
    small = {
        name: array.astype(np.uint8) for name, array in arrays.items() if array.dtype.kind == "i"
    }
    assert all((small[name] == arrays[name]).all() for name in small)
    np.savez_compressed(_run_path(run), **arrays | small, eos=np.array(eos, np.uint8))


def load_run(run: SamplerCase) -> tuple[Recording, tuple[int, ...]]:
    with np.load(_run_path(run)) as arrays:
        recording = Recording(
            tokens=arrays["tokens"].tolist(),
            steps=arrays["steps"].tolist(),
            cache_length=int(arrays["cache_length"]),
            uniform=arrays["uniform"].astype(np.int32),
            categorical=arrays["categorical"].astype(np.int32),
            logits=arrays["logits"],
        )
        return recording, tuple(arrays["eos"].tolist())


def _run_path(run: SamplerCase) -> Path:
    return FOLDER / f"run-{run.seed}.npz"
