"""Runs of the denoising loop to compare: knobs, lengths and draws' seeds, no torch.

The networks are sharpened (large embeddings, small layer contributions), so that canvases settle
and the stopping rule fires at different steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from tests.parity.cases import Case

STEPS = 12


@dataclass(frozen=True)
class SamplerCase:
    """A configuration, the knobs of a run, its length limit and the seed of its draws."""

    case: Case
    settings: DiffusionSettings
    max_tokens: int
    seed: int

    @property
    def name(self) -> str:
        return self.case.name


def _make(
    number: int,
    stability: int,
    confidence: float,
    bound: float,
    gains: tuple[float, float],
    *,
    max_tokens: int = 18,
    steps: int = STEPS,
    t_min: float = 0.4,
    t_max: float = 0.8,
    canvas: int = 6,
) -> SamplerCase:
    case = Case(
        f"s{number}-stability{stability}-below{confidence}-bound{bound}-{max_tokens}tokens",
        400 + number,
        kinds=("sf", "fsf", "ssf")[number % 3],
        canvas=canvas,
        prompt=(13, 1, 9, 5)[number % 4],
        embedding_gain=gains[0],
        branch_gain=gains[1],
    )
    settings = DiffusionSettings(
        max_steps=steps,
        t_min=t_min,
        t_max=t_max,
        entropy_bound=bound,
        stability_threshold=stability,
        confidence_threshold=confidence,
    )
    return SamplerCase(case, settings, max_tokens, seed=number)


SHARP, BLUNT = (5.0, 0.3), (2.0, 0.4)

SAMPLER_CASES = (
    *(
        _make(10 * stability + i, stability, confidence, bound, SHARP)
        for stability in (0, 1, 2, 3)
        for i, (confidence, bound) in enumerate(
            [(0.01, 0.1), (0.02, 0.3), (0.005, 1.0), (0.02, 0.1), (0.05, 0.2), (0.003, 0.5)]
        )
    ),
    # Never confident: every canvas runs to the last step.
    _make(50, 1, 0.005, 0.1, BLUNT, max_tokens=12),
    _make(51, 0, 0.005, 1.0, BLUNT, max_tokens=6),
    # The released knobs, with fewer steps.
    _make(52, 1, 0.005, 0.1, SHARP, steps=16),
    # Lengths that are no multiple of the canvas.
    _make(53, 1, 0.1, 0.3, SHARP, max_tokens=1),
    _make(54, 1, 0.1, 0.3, SHARP, max_tokens=5),
    _make(55, 1, 0.1, 0.3, SHARP, max_tokens=7),
    _make(56, 1, 0.1, 0.3, SHARP, max_tokens=15),
    # One step, other temperatures, a canvas above the window.
    _make(57, 0, 0.1, 0.3, SHARP, steps=1),
    _make(58, 2, 0.1, 0.3, SHARP, t_min=0.0, t_max=1.5),
    _make(59, 1, 0.2, 0.3, SHARP, canvas=11, max_tokens=22),
)
