"""What is said about a finished answer: notices, statistics, and the JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlx_diffusiongemma.cli.sanitize import escape_json, one_line

if TYPE_CHECKING:
    from mlx_diffusiongemma.results import Result


def notices(result: Result) -> list[str]:
    """Sentences about an answer that is not what the reader may take it for."""
    said: list[str] = []
    if result.cut_while_thinking:
        end = (
            f"after {_count(result.stats.tokens, 'token')}"
            if result.finish_reason == "length"
            else "with the context full"
            if result.finish_reason == "context"
            else "at an end token"
        )
        said.append(
            f"the model was still thinking when it was stopped {end}, so there is no answer;"
            " raise --max-tokens or try --no-thinking."
        )
    elif result.finish_reason == "length":
        said.append(
            f"the answer was cut after {_count(result.stats.tokens, 'token')};"
            " raise --max-tokens for more."
        )
    elif result.finish_reason == "context":
        said.append("the answer was cut because the model's context is full.")
    if result.tool_calls:
        names = ", ".join(one_line(call.name) for call in result.tool_calls)
        said.append(f"the model called a tool ({names}); --json shows the call.")
    elif not result.text.strip() and result.finish_reason == "stop" and not said:
        said.append(
            "the model ended at once, so the answer is empty; another --seed or asking for a whole"
            " sentence may help."
        )
    return said


def statistics(result: Result, load_seconds: float | None = None) -> str:
    """The lines of --stats."""
    stats = result.stats
    reused = f" ({stats.reused_tokens} reused)" if stats.reused_tokens else ""
    each = f" ({', '.join(map(str, stats.steps))})" if stats.canvases > 1 else ""
    lines = [
        f"prompt: {_count(stats.prompt_tokens, 'token')}{reused} in {stats.prefill_seconds:.2f} s",
        f"answer: {_count(stats.tokens, 'token')} in {stats.denoise_seconds:.2f} s,"
        f" {stats.tokens_per_second:.1f} tokens/s, ended by {result.finish_reason}",
        f"canvas: {_count(stats.canvases, 'canvas', 'canvases')},"
        f" {_count(sum(stats.steps), 'step')}{each},"
        f" {stats.steps_per_canvas:.1f} steps/canvas, {stats.tokens_per_step:.1f} tokens/step",
        f"seed: {result.seed}",
    ]
    if load_seconds is not None:
        lines.insert(0, f"load: {load_seconds:.2f} s")
    return "\n".join(lines)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def as_json(result: Result, model: str, load_seconds: float) -> str:
    """One JSON object on one line, newline included."""
    stats = result.stats
    content: dict[str, Any] = {
        "answer": result.text,
        "thinking": result.thinking,
        "tool_calls": [
            {"name": call.name, "arguments": call.arguments} for call in result.tool_calls
        ],
        "finish_reason": result.finish_reason,
        "cut_while_thinking": result.cut_while_thinking,
        "prompt_tokens": stats.prompt_tokens,
        "tokens": stats.tokens,
        "canvases": stats.canvases,
        "steps": list(stats.steps),
        "seed": result.seed,
        "model": model,
        "seconds": {
            "load": round(load_seconds, 3),
            "prefill": round(stats.prefill_seconds, 3),
            "denoise": round(stats.denoise_seconds, 3),
        },
    }
    return escape_json(json.dumps(content, ensure_ascii=False)) + "\n"
