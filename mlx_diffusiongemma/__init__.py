"""mlx-diffusiongemma: a local runtime for Google's DiffusionGemma on Apple silicon.

    from mlx_diffusiongemma import load

    runtime = load("demo")
    print(runtime.generate("What is the capital of Italy?", seed=1).text)

Names are imported when first used, so that `import mlx_diffusiongemma` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlx_diffusiongemma.config import ModelConfig, read_config
    from mlx_diffusiongemma.diffusion.events import (
        CanvasDone,
        CanvasStarted,
        Event,
        Finished,
        Step,
    )
    from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
    from mlx_diffusiongemma.errors import (
        DiffusionGemmaError,
        MemoryLimitError,
        ModelError,
        NetworkError,
        OutputError,
        UsageError,
    )
    from mlx_diffusiongemma.model.cache import Prefix
    from mlx_diffusiongemma.results import Result, Stats
    from mlx_diffusiongemma.runtime import Runtime, load
    from mlx_diffusiongemma.text.channels import ToolCall

_HOMES = {
    "config": ("ModelConfig", "read_config"),
    "diffusion.events": ("CanvasDone", "CanvasStarted", "Event", "Finished", "Step"),
    "diffusion.settings": ("DiffusionSettings",),
    "errors": (
        "DiffusionGemmaError",
        "MemoryLimitError",
        "ModelError",
        "NetworkError",
        "OutputError",
        "UsageError",
    ),
    "model.cache": ("Prefix",),
    "results": ("Result", "Stats"),
    "runtime": ("Runtime", "load"),
    "text.channels": ("ToolCall",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"

__all__ = [
    "CanvasDone",
    "CanvasStarted",
    "DiffusionGemmaError",
    "DiffusionSettings",
    "Event",
    "Finished",
    "MemoryLimitError",
    "ModelConfig",
    "ModelError",
    "NetworkError",
    "OutputError",
    "Prefix",
    "Result",
    "Runtime",
    "Stats",
    "Step",
    "ToolCall",
    "UsageError",
    "load",
    "read_config",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
