"""Options that several commands share, and the check of their values before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from mlx_diffusiongemma.cli.grammar import remember_debug
from mlx_diffusiongemma.errors import UsageError

DTYPES = ("float32", "float16", "bfloat16")
VIEWS = ("auto", "live", "plain", "off")
SAMPLERS = ("entropy-bound", "confidence")
MAX_SEED = 2**64 - 1
LARGEST, LARGEST_WHOLE = 1e30, 2**31 - 1  # as the denoising loop has them

_MODEL, _SAMPLING, _OUTPUT = "Model", "Sampling", "Output"

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        rich_help_panel=_MODEL,
        help="A folder, a Hugging Face name, or demo for the bundled tiny model. Without it:"
        " MLX_DIFFUSIONGEMMA_MODEL, then the config file.",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        metavar="REV", rich_help_panel=_MODEL, help="Branch, tag or commit of a Hugging Face name."
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        rich_help_panel=_MODEL,
        help=f"Type to compute in: {', '.join(DTYPES)}. Without it: the best for this machine.",
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt", "-p", metavar="TEXT", rich_help_panel="Prompt", help="Text; - is stdin."
    ),
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw",
        rich_help_panel="Prompt",
        help="Give the prompt to the model as it is, markers and all, without the chat template.",
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        "--system-prompt", metavar="TEXT", rich_help_panel="Prompt", help="Instructions up front."
    ),
]
Thinking = Annotated[
    bool | None,
    typer.Option(
        "--thinking/--no-thinking",
        rich_help_panel="Prompt",
        help="Ask the model to think first, or not to. Without either: as the model's template"
        " does it.",
        show_default=False,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=_SAMPLING, help="Longest answer, in tokens (checkpoint's)."
    ),
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temp",
        "--temperature",
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="Divides the logits of each proposal draw: 1 is the checkpoint's own schedule, 0"
        " proposes the most likely token. The canvas starts as noise, so 0 alone is not"
        " repeatable: add --seed. Default 1.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_SAMPLING,
        help="Same seed, same answer on the same machine. Without it: a new one each time,"
        " shown by --stats.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_SAMPLING,
        help="Most denoising steps per canvas (checkpoint's). The temperatures are spread over N,"
        " so fewer steps also means a steeper schedule.",
    ),
]
Sampler = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_SAMPLING,
        help="entropy-bound (the default, the model's own) or confidence (reveal sure tokens and"
        " keep them).",
        show_default=False,
    ),
]
EntropyBound = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="Nats of joint doubt up to which tokens are accepted in a step (checkpoint's).",
    ),
]
TMin = Annotated[
    float | None,
    typer.Option(
        "--t-min", metavar="X", rich_help_panel=_SAMPLING, help="Temperature the steps fall to."
    ),
]
TMax = Annotated[
    float | None,
    typer.Option(
        "--t-max", metavar="X", rich_help_panel=_SAMPLING, help="Temperature of the first step."
    ),
]
Stability = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_SAMPLING,
        help="Steps in a row a prediction must stay unchanged before a canvas may stop early.",
    ),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="Mean entropy in nats below which an unchanged canvas stops early (0: never).",
    ),
]
ShowThinking = Annotated[
    bool,
    typer.Option(
        "--show-thinking",
        rich_help_panel=_OUTPUT,
        help="Print what the model thought on stderr, between [thinking] and [/thinking].",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        rich_help_panel=_OUTPUT,
        help="Print one JSON object instead: answer, thinking, tool_calls, finish_reason, counts,"
        " steps, seed, model, seconds.",
    ),
]
Stream = Annotated[
    bool,
    typer.Option(
        "--stream/--no-stream",
        rich_help_panel=_OUTPUT,
        help="Print each canvas when it is final, or all of them at the end.",
    ),
]
Stats = Annotated[
    bool,
    typer.Option("--stats", rich_help_panel=_OUTPUT, help="Tokens, steps and times on stderr."),
]
View = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        rich_help_panel=_OUTPUT,
        help="What a terminal shows while the answer forms: live (the canvas), plain (one status"
        " line), off, or auto (default). Never anything in a pipe.",
        show_default=False,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        rich_help_panel=_OUTPUT,
        help="No notices, progress or statistics on stderr; errors only.",
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        rich_help_panel=_OUTPUT,
        callback=remember_debug,
        is_eager=True,
        help="Show the traceback of an error.",
    ),
]


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; None leaves a value to the checkpoint. Checked when made."""

    max_tokens: int | None = None
    temperature: float = 1.0
    seed: int | None = None
    steps: int | None = None
    sampler: str = "entropy-bound"
    entropy_bound: float | None = None
    t_min: float | None = None
    t_max: float | None = None
    stability: int | None = None
    confidence: float | None = None
    thinking: bool | None = None

    def __post_init__(self) -> None:
        _at_least("--max-tokens", self.max_tokens, 1)
        _at_least("--temp", self.temperature, 0)
        _at_least("--seed", self.seed, 0)
        if self.seed is not None and self.seed > MAX_SEED:
            raise UsageError(f"--seed must be at most {MAX_SEED}, not {self.seed}.")
        _at_least("--steps", self.steps, 1)
        _at_most("--steps", self.steps, LARGEST_WHOLE)
        _one_of("--sampler", self.sampler, SAMPLERS)
        _above_zero("--entropy-bound", self.entropy_bound)
        _at_least("--t-min", self.t_min, 0)
        _at_least("--t-max", self.t_max, 0)
        _at_least("--stability", self.stability, 0)
        _at_most("--stability", self.stability, LARGEST_WHOLE)
        _at_least("--confidence", self.confidence, 0)
        if self.t_min is not None and self.t_max is not None and self.t_max < self.t_min:
            raise UsageError(f"--t-max ({self.t_max:g}) is below --t-min ({self.t_min:g}).")
        if self.sampler == "confidence" and self.entropy_bound is not None:
            raise UsageError(
                "--entropy-bound means nothing to --sampler confidence.", "Leave one of them out."
            )

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of `Runtime.stream`, without those left to the checkpoint."""
        named = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "steps": self.steps,
            "sampler": self.sampler,
            "entropy_bound": self.entropy_bound,
            "t_min": self.t_min,
            "t_max": self.t_max,
            "stability_threshold": self.stability,
            "confidence_threshold": self.confidence,
            "thinking": self.thinking,
        }
        return {name: value for name, value in named.items() if value is not None}

    def later(self, turns: int) -> Sampling:
        """The same for the answer `turns` answers later: only the seed moves on."""
        if self.seed is None:
            return self
        return replace(self, seed=(self.seed + turns) % (MAX_SEED + 1))


def check_view(view: str) -> None:
    """UsageError unless `view` is one of VIEWS."""
    _one_of("--view", view, VIEWS)


def check_choices(view: str, dtype: str | None) -> None:
    """UsageError unless `view` is one of VIEWS and `dtype` None or one of DTYPES."""
    check_view(view)
    if dtype is not None:
        _one_of("--dtype", dtype, DTYPES)


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{option} must be one of {', '.join(choices)}, not {value!r}.")


def _at_least(option: str, value: float | None, least: int) -> None:
    if value is None:
        return
    if value != value or value in (math.inf, -math.inf):
        raise UsageError(f"{option} must be a finite number, not {value}.")
    if value < least:
        raise UsageError(f"{option} must be at least {least}, not {value}.")
    if isinstance(value, float):
        _at_most(option, value, LARGEST)


def _at_most(option: str, value: float | None, most: float) -> None:
    if value is not None and value > most:
        raise UsageError(f"{option} must be at most {most}, not {value}.")


def _above_zero(option: str, value: float | None) -> None:
    _at_least(option, value, 0)
    if value == 0:
        raise UsageError(f"{option} must be greater than 0.")
