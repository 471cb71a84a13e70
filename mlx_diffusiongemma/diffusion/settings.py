"""The knobs of the denoising loop, checked once, and the temperature schedule they define."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlx_diffusiongemma.errors import UsageError

SamplerName = Literal["entropy-bound", "confidence"]
SAMPLERS: tuple[SamplerName, ...] = ("entropy-bound", "confidence")
_LARGEST = 1e30


@dataclass(frozen=True)
class DiffusionSettings:
    """How a canvas is denoised. Defaults are the released checkpoint's.

    max_steps: at most this many passes per canvas (>= 1).
    t_max, t_min: temperature of step n of max_steps falls linearly from t_max towards t_min.
        Both 0 is a deterministic mode: logits unscaled, proposals are the most likely tokens.
    sampler: "entropy-bound" (the reference's) or "confidence".
    entropy_bound: nats of summed lower entropies up to which positions are accepted (> 0).
    reveal_threshold: probability from which the confidence sampler fixes a proposal (0..1).
    proposal_temperature: divides the logits of the proposal draw only; 1 is the reference,
        0 proposes the most likely token. Entropies and stopping do not see it.
    stability_threshold: equal predictions in a row needed before the current one (>= 0).
    confidence_threshold: mean entropy in nats below which a stable canvas is done (0: never).
    """

    max_steps: int = 48
    t_min: float = 0.4
    t_max: float = 0.8
    sampler: SamplerName = "entropy-bound"
    entropy_bound: float = 0.1
    reveal_threshold: float = 0.9
    proposal_temperature: float = 1.0
    stability_threshold: int = 1
    confidence_threshold: float = 0.005

    def __post_init__(self) -> None:
        checked_whole("steps", self.max_steps, minimum=1)
        checked_whole("stability_threshold", self.stability_threshold, minimum=0)
        _real("t_min", self.t_min, minimum=0.0)
        _real("t_max", self.t_max, minimum=0.0)
        if self.t_max < self.t_min:
            raise UsageError(f"t_max ({self.t_max:g}) must not be below t_min ({self.t_min:g}).")
        _real("temperature", self.proposal_temperature, minimum=0.0)
        _positive("entropy_bound", self.entropy_bound)
        _real("confidence_threshold", self.confidence_threshold, minimum=0.0)
        _real("reveal_threshold", self.reveal_threshold, minimum=0.0)
        if self.reveal_threshold > 1:
            raise UsageError(f"reveal_threshold must be at most 1, not {self.reveal_threshold:g}.")
        if self.sampler not in SAMPLERS:
            raise UsageError(f"sampler must be one of {', '.join(SAMPLERS)}, not {self.sampler!r}.")

    def temperature(self, step: int) -> float:
        """Temperature of `step` (1-based): t_max at the first, never quite t_min at the last.

        T = t_min + (t_max - t_min) * remaining / max_steps, the remaining steps counting this one
        (LinearTemperatureScheduleLogitsProcessor of the reference).
        """
        remaining = self.max_steps - step + 1
        return self.t_min + (self.t_max - self.t_min) * (remaining / self.max_steps)


def checked_whole(name: str, value: object, minimum: int) -> int:
    """`value` if it is a whole number of at least `minimum`; raises UsageError naming `name`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise UsageError(f"{name} must be a whole number of at least {minimum}, not {value!r}.")
    return value


def _real(name: str, value: object, minimum: float) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    # The bound also keeps out integers too large to be a float.
    if not good or not minimum <= value <= _LARGEST:  # type: ignore[operator]
        raise UsageError(f"{name} must be a number of at least {minimum:g}, not {value!r}.")


def _positive(name: str, value: object) -> None:
    _real(name, value, minimum=0.0)
    if value == 0:
        raise UsageError(f"{name} must be greater than 0.")
