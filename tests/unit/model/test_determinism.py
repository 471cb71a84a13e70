"""The same seed gives the same bytes: again, after other work, and in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from mlx_diffusiongemma.diffusion.denoise import generate
from mlx_diffusiongemma.diffusion.draws import KeyDraws
from mlx_diffusiongemma.diffusion.events import Step
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.session import Session
from tests.parity.cases import Case
from tests.parity.ours import build_ours

ROOT = Path(__file__).parents[3]
# Lengths that are no multiple of 8 or 32.
CASE = Case("determinism", 950, kinds="ssf", prompt=37, canvas=13, window=11, experts=6, vocab=97)


def trace(seed: int) -> str:
    """Every draft and entropy of an answer of three canvases, as text that shows each bit."""
    model = build_ours(CASE)
    session = Session(model, model.prefill(CASE.ids(1, CASE.prompt)))
    settings = DiffusionSettings(max_steps=4)
    events = generate(session, settings, KeyDraws(seed), max_tokens=3 * 13, stop_ids=())
    lines = [
        event.draft.tobytes().hex() + event.entropies.tobytes().hex()
        for event in events
        if isinstance(event, Step)
    ]
    return "\n".join(lines)


def test_five_runs_in_one_process() -> None:
    first = trace(7)
    for number in range(1, 5):
        churn = [mx.random.normal((size * number, 97)) for size in (3, 50, 211)]
        mx.eval(churn)
        assert trace(7) == first
    assert trace(8) != first


@pytest.mark.parametrize("number", [1, 2])
def test_other_processes(number: int) -> None:
    code = (
        f"import mlx.core as mx; mx.random.seed({number})\n"
        "from tests.unit.model.test_determinism import trace; print(trace(7))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == trace(7)
