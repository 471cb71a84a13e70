"""The knobs of the denoising loop, checked once, and the temperature schedule they define."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Literal

from mlx_diffusiongemma.errors import UsageError

SamplerName = Literal["entropy-bound", "confidence"]
SAMPLERS: tuple[SamplerName, ...] = ("entropy-bound", "confidence")
LARGEST = 1e30  # of any number, so that float32 holds it
SMALLEST = 1e-30  # of a temperature that is not 0, so that float32 holds logits divided by it
LARGEST_WHOLE = 2**31 - 1
_WHOLE = (("max_steps", "steps", 1), ("stability_threshold", "stability_threshold", 0))


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
        for field, name, minimum in _WHOLE:
            value = checked_whole(name, getattr(self, field), minimum, LARGEST_WHOLE)
            object.__setattr__(self, field, value)
        _real("t_min", self.t_min, minimum=0.0)
        _real("t_max", self.t_max, minimum=0.0)
        if self.t_max < self.t_min:
            raise UsageError(f"t_max ({self.t_max:g}) must not be below t_min ({self.t_min:g}).")
        if 0 < self.temperature(self.max_steps) < SMALLEST:
            raise UsageError(
                f"t_max ({self.t_max:g}) is too small: it must be 0 or at least {SMALLEST:g} at the"
                f" last step."
            )
        _real("temperature", self.proposal_temperature, minimum=0.0)
        if 0 < self.proposal_temperature < SMALLEST:
            raise UsageError(
                f"temperature must be 0 or at least {SMALLEST:g}, not {self.proposal_temperature}."
            )
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


def checked_whole(name: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """`value` as an int if it is a whole number (numpy's too) in range; UsageError names `name`."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        number = index(value)
        if number >= minimum and (maximum is None or number <= maximum):
            return number
    wanted = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    raise UsageError(f"{name} must be a whole number {wanted}, not {_shown(value)}.")


def _real(name: str, value: object, minimum: float) -> None:
    good = isinstance(value, Real) and not isinstance(value, bool)
    # The bound also keeps out integers too large to be a float.
    if not good or not minimum <= value <= LARGEST:  # type: ignore[operator]
        wanted = f"a number from {minimum:g} to {LARGEST:g}"
        raise UsageError(f"{name} must be {wanted}, not {_shown(value)}.")


def _shown(value: object) -> str:
    huge = isinstance(value, int) and value.bit_length() > 1000  # Python has a limit of its own
    return "a huge number" if huge else repr(value)[:100]


def _positive(name: str, value: object) -> None:
    _real(name, value, minimum=0.0)
    if value == 0:
        raise UsageError(f"{name} must be greater than 0.")
