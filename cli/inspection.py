"""What a model folder holds, as data: counted from config and file headers, no weight is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlx_diffusiongemma.errors import ModelError

if TYPE_CHECKING:
    from mlx_diffusiongemma.checkpoint.index import Checkpoint
    from mlx_diffusiongemma.checkpoint.plan import PlannedModule, WeightPlan
    from mlx_diffusiongemma.config import ModelConfig


@dataclass
class Part:
    """The weights of one kind: values, bytes on disk, and how they are stored."""

    parameters: int = 0
    bytes: int = 0
    formats: dict[str, int] = field(default_factory=dict)

    @property
    def bits(self) -> float:
        """Stored bits per weight, scales and biases included."""
        return self.bytes * 8 / self.parameters if self.parameters else 0.0

    def add(self, parameters: int, size: int, how: str) -> None:
        """Counts one module in."""
        self.parameters += parameters
        self.bytes += size
        self.formats[how] = self.formats.get(how, 0) + parameters


def inspect_folder(folder: Path, name: str) -> tuple[dict[str, Any], ModelError | None]:
    """Everything about a model folder, and what is wrong with its weight files if something is.

    Raises ModelError when config.json itself cannot be used.
    """
    from mlx_diffusiongemma.checkpoint.index import open_checkpoint
    from mlx_diffusiongemma.checkpoint.plan import plan_weights
    from mlx_diffusiongemma.config import read_config

    config = read_config(folder)
    report: dict[str, Any] = {
        "model": name,
        "folder": str(folder.resolve()),
        "config": describe_config(config),
        "sampler": describe_sampler(config),
        "stop_tokens": describe_stops(folder, config),
        "chat_template": _has_template(folder),
    }
    try:
        checkpoint = open_checkpoint(folder)
        plan = plan_weights(checkpoint, config)
    except ModelError as error:
        report["check"] = {"ok": False, "problem": error.message}
        return report, error
    report |= describe_weights(checkpoint, plan, config)
    report["check"] = {"ok": True, "problem": None}
    return report, None


def describe_config(config: ModelConfig) -> dict[str, Any]:
    """Sizes of the network."""
    text = config.text
    full = sum(layer.is_full for layer in text.layers)
    return {
        "model_type": config.raw.get("model_type"),
        "canvas_length": config.canvas_length,
        "context_length": text.max_position_embeddings,
        "layers": len(text.layers),
        "sliding_layers": len(text.layers) - full,
        "full_layers": full,
        "sliding_window": text.sliding_window,
        "hidden_size": text.hidden_size,
        "vocabulary": text.vocab_size,
        "experts": text.num_experts,
        "experts_per_token": text.top_k_experts,
        "dtype": config.dtype,
        "vision": None if config.vision is None else "present, not read",
    }


def describe_sampler(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's sampler defaults and where they come from."""
    defaults = config.generation
    return {
        "source": defaults.source,
        "max_tokens": defaults.max_new_tokens,
        "steps": defaults.max_denoising_steps,
        "entropy_bound": defaults.entropy_bound,
        "t_min": defaults.t_min,
        "t_max": defaults.t_max,
        "stability": defaults.stability_threshold,
        "confidence": defaults.confidence_threshold,
        "notices": list(defaults.notices),
    }


def describe_stops(folder: Path, config: ModelConfig) -> list[dict[str, Any]]:
    """Ids that end an answer, with their names: the config's and the tokenizer's own."""
    from mlx_diffusiongemma.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder)
    ids = sorted({*config.stop_token_ids, *tokenizer.eos_token_ids})
    return [{"id": token, "token": tokenizer.id_to_token(token)} for token in ids]


def describe_weights(
    checkpoint: Checkpoint, plan: WeightPlan, config: ModelConfig
) -> dict[str, Any]:
    """Parameters by kind, how each kind is stored, and the files."""
    from mlx_diffusiongemma.convert.recipes import PARTS, part_of

    parts = {name: Part() for name in PARTS}
    for module in plan.modules.values():
        size = sum(
            checkpoint.tensors[name].nbytes
            for source in module.tensors.values()
            for name in source.names
        )
        parts[part_of(module.spec)].add(prod(module.spec.shape), size, _format(module, checkpoint))
    total = Part()
    for part in parts.values():
        total.parameters += part.parameters
        total.bytes += part.bytes
    resting = 1 - config.text.top_k_experts / config.text.num_experts
    return {
        "parameters": {kind: _part(part) for kind, part in parts.items() if part.parameters},
        "total": {
            "parameters": total.parameters,
            "bytes": total.bytes,
            "bits": round(total.bits, 2),
        },
        "active_parameters": total.parameters - round(parts["experts"].parameters * resting),
        "unread": {
            "vision": _unread(plan.vision, checkpoint),
            "tied copies and unused": _unread(plan.ignored, checkpoint),
        },
        "files": [_file(name, checkpoint) for name in checkpoint.files],
        "extra_files": list(checkpoint.extra_files),
    }


def _format(module: PlannedModule, checkpoint: Checkpoint) -> str:
    packing = module.quantization
    if packing is not None:
        return f"{packing.bits}-bit {packing.mode}, group {packing.group_size}"
    stored = next(iter(module.tensors.values())).names[0]
    return checkpoint.tensors[stored].dtype


def _part(part: Part) -> dict[str, Any]:
    return {
        "parameters": part.parameters,
        "bytes": part.bytes,
        "bits": round(part.bits, 2),
        "formats": part.formats,
    }


def _unread(names: Iterable[str], checkpoint: Checkpoint) -> Mapping[str, int]:
    known = [checkpoint.tensors[name] for name in names]
    return {"tensors": len(known), "bytes": sum(info.nbytes for info in known)}


def _file(name: str, checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "name": name,
        "bytes": (checkpoint.folder / name).stat().st_size,
        "tensors": sum(info.file == name for info in checkpoint.tensors.values()),
    }


def _has_template(folder: Path) -> bool:
    from mlx_diffusiongemma.text.chat import load_template

    return load_template(folder) is not None
