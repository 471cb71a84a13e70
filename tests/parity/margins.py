"""How near a recorded run came to going another way: golden runs must be far from it.

A run of the sampler is a chain of decisions on numbers that differ by rounding between machines.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from tests.parity.recording import Recording


def entropy(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Entropy in nats of softmax over the last axis, in float64."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return np.asarray(-(np.exp(log_p) * log_p).sum(-1))


def smallest_margin(recording: Recording, settings: DiffusionSettings) -> float:
    """The smallest distance from a tie among predictions, acceptances and the confident stop."""
    ordered = np.sort(recording.logits, axis=-1)
    margins = [float((ordered[..., -1] - ordered[..., -2]).min())]
    for step in entropy(recording.logits):
        ascending = np.sort(step)
        before = np.cumsum(ascending) - ascending
        margins.append(float(np.abs(before - settings.entropy_bound).min()))
        accepted = int((before <= settings.entropy_bound).sum())
        if accepted < len(step):
            margins.append(float(ascending[accepted] - ascending[accepted - 1]))
        margins.append(abs(float(step.mean()) - settings.confidence_threshold))
    return min(margins)
