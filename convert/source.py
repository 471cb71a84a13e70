"""The model to be converted: its checked files as a list of modules, each readable on its own.

What the modules become is left to the recipe; a source that is already quantised is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlx_diffusiongemma.checkpoint.header import TensorInfo
from mlx_diffusiongemma.checkpoint.index import Checkpoint, open_checkpoint
from mlx_diffusiongemma.checkpoint.modules import TOWER, ModuleKind, ModuleSpec, vision_modules
from mlx_diffusiongemma.checkpoint.names import canonical_name
from mlx_diffusiongemma.checkpoint.plan import FLOATS, Source, plan_weights, read_source
from mlx_diffusiongemma.config import ModelConfig, read_config
from mlx_diffusiongemma.config.jsonfile import read_json_object, shown
from mlx_diffusiongemma.config.model import GENERATION_FILE
from mlx_diffusiongemma.errors import ModelError


@dataclass(frozen=True)
class Item:
    """One module of the source: what it is, its dtype (BF16, F16 or F32) and its stored tensors."""

    module: ModuleSpec
    dtype: str
    stored: Source
    nbytes: int


@dataclass(frozen=True)
class SourceModel:
    """A checked, unquantised model folder.

    `items` are the text modules, then the vision tensors; `generation` is the content of
    generation_config.json or None; `dropped` are stored tensors that nothing reads (tied copies).
    """

    folder: Path
    config: ModelConfig
    checkpoint: Checkpoint
    generation: Mapping[str, Any] | None
    items: tuple[Item, ...]
    vision: tuple[str, ...]
    missing_vision: tuple[str, ...]
    dropped: tuple[str, ...]

    def read(self, item: Item) -> mx.array:
        """The weight of one module, in the module's shape and the source's dtype, not cached."""
        array = read_source(self.checkpoint, item.stored).reshape(item.module.shape)
        try:
            mx.eval(array)
        except RuntimeError:
            file = self.checkpoint.tensors[item.stored.names[0]].file
            raise ModelError(f"{shown(file)} cannot be read to its end.") from None
        return array


def open_source(folder: Path) -> SourceModel:
    """Check a model folder completely (headers only) and list what is in it.

    Raises ModelError for everything `read_config`, `open_checkpoint` and `plan_weights` refuse, and
    for weights that are quantised already.
    """
    config = read_config(folder)
    if config.quantization is not None:
        raise _quantised()
    checkpoint = open_checkpoint(folder)
    plan = plan_weights(checkpoint, config)
    items = []
    for path, module in plan.modules.items():
        source = module.tensors[module.spec.tensor]
        infos = [checkpoint.tensors[name] for name in source.names]
        size = sum(info.nbytes for info in infos)
        items.append(Item(plan.modules[path].spec, infos[0].dtype, source, size))
    # The tower's clip bounds belong to it, though only some readers use them.
    bounds = [name for name in plan.ignored if _is_clip_bound(name)]
    vision = (*plan.vision, *bounds)
    items += [_vision_item(checkpoint.tensors[name]) for name in vision]
    generation = folder / GENERATION_FILE
    return SourceModel(
        folder=folder,
        config=config,
        checkpoint=checkpoint,
        generation=read_json_object(generation) if generation.exists() else None,
        items=tuple(items),
        vision=tuple(canonical_name(name) for name in vision),
        missing_vision=_missing_vision(config, vision),
        dropped=tuple(name for name in plan.ignored if name not in bounds),
    )


def _quantised() -> ModelError:
    return ModelError(
        "The source is quantised already.",
        "Run it as it is, or convert the original weights.",
    )


def _is_clip_bound(name: str) -> bool:
    return canonical_name(name).startswith(f"{TOWER}.") and "rotary_emb." not in name


def _vision_item(info: TensorInfo) -> Item:
    """A vision tensor as it is; two-dimensional `.weight`s count as matrices."""
    name = canonical_name(info.name)
    if name.endswith((".scales", ".biases")):
        raise _quantised()
    if info.dtype not in FLOATS:
        raise ModelError(
            f"The tensor {shown(info.name)} has the dtype {info.dtype}, not {' or '.join(FLOATS)}."
        )
    if name.endswith(".weight"):
        kind: ModuleKind = "linear" if len(info.shape) == 2 else "norm"
        module = ModuleSpec(name.removesuffix(".weight"), info.shape, kind)
    else:
        module = ModuleSpec(name, info.shape, "table")
    return Item(module, info.dtype, Source(((info.name,),)), info.nbytes)


def _missing_vision(config: ModelConfig, stored: tuple[str, ...]) -> tuple[str, ...]:
    """The tower's tensors that config.json calls for and the files lack, if they hold any."""
    if not stored:
        return ()
    found = {canonical_name(name) for name in stored}
    return tuple(
        spec.tensor for spec in vision_modules(config).values() if spec.tensor not in found
    )
