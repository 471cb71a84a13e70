"""What the denoising loop tells its caller, in order: per canvas one start, its steps, one end.

Events hold plain Python and numpy values, already read from the device. Token ids are the loop's;
the `text` and `thinking` fields are filled by the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

FinishReason = Literal["stop", "length", "context"]


@dataclass(frozen=True)
class CanvasStarted:
    """A canvas of `length` random ids begins; `canvas` counts from 1."""

    canvas: int
    length: int


@dataclass(frozen=True)
class Step:
    """One denoising pass.

    draft: the argmax ids (L,), what would be committed if this were the last step.
    entropies: float32 (L,), nats, after temperature. accepted: bool (L,), positions whose proposal
    stays on the canvas for the next step. stable: the draft equals the ones before it. converged:
    the stopping rule ended the canvas with this step.
    """

    canvas: int
    step: int
    max_steps: int
    temperature: float
    draft: npt.NDArray[np.int32]
    entropies: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.bool_]
    stable: bool
    converged: bool


@dataclass(frozen=True)
class CanvasDone:
    """A canvas is final. token_ids are those emitted: cut at the end token and at the limit.

    converged: the stopping rule ended it, not the step limit. text and thinking became final
    with it (a few characters may be held back until the next canvas shows how they end).
    """

    canvas: int
    token_ids: tuple[int, ...]
    steps: int
    converged: bool
    text: str = ""
    thinking: str = ""


@dataclass(frozen=True)
class Finished:
    """The answer is complete.

    reason: "stop" (an end token, included in token_ids), "length" (max_tokens reached) or
    "context" (the next canvas would not fit the model's context). steps: passes per canvas. text
    and thinking are what was still held back; all texts joined are the result's text.
    """

    reason: FinishReason
    token_ids: tuple[int, ...]
    steps: tuple[int, ...]
    text: str = ""
    thinking: str = ""


Event = CanvasStarted | Step | CanvasDone | Finished
