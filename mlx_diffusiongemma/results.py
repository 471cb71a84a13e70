"""What an answer is, once it is complete: text by channel, ids, reason and honest numbers."""

from __future__ import annotations

from dataclasses import dataclass

from mlx_diffusiongemma.diffusion.events import FinishReason
from mlx_diffusiongemma.text.channels import ToolCall


@dataclass(frozen=True)
class Stats:
    """Times in seconds (wall), counts in tokens and denoising passes.

    steps: passes of each canvas. tokens: ids emitted, the end token included. reused_tokens: prompt
    tokens whose keys and values came from an earlier request.
    """

    prompt_tokens: int
    reused_tokens: int
    tokens: int
    steps: tuple[int, ...]
    prefill_seconds: float
    denoise_seconds: float

    @property
    def canvases(self) -> int:
        return len(self.steps)

    @property
    def steps_per_canvas(self) -> float:
        """Mean denoising passes per canvas; 0 without a canvas."""
        return sum(self.steps) / len(self.steps) if self.steps else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Tokens emitted per denoising pass; 0 without a pass."""
        return self.tokens / sum(self.steps) if self.steps else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens emitted per second of denoising and committing; 0 without time."""
        return self.tokens / self.denoise_seconds if self.denoise_seconds > 0 else 0.0


@dataclass(frozen=True)
class Result:
    """An answer.

    text is the answer channel alone; thinking and tool_calls stand apart. token_ids are all ids
    emitted, markers and the end token included. finish_reason: "stop" (an end token), "length"
    (max_tokens) or "context" (no room for another canvas). seed repeats the run on this machine.
    cut_while_thinking: the end came inside the thinking channel, so the answer is missing.
    """

    text: str
    thinking: str
    tool_calls: tuple[ToolCall, ...]
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    cut_while_thinking: bool
    seed: int
    stats: Stats

    @property
    def prompt_tokens(self) -> int:
        return self.stats.prompt_tokens
