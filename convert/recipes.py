"""Recipes: how many bits each matrix of the model gets.

Pure decisions over module paths and shapes; packing and writing are left to other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mlx_diffusiongemma.checkpoint.modules import TOWER, ModuleSpec
from mlx_diffusiongemma.config import QuantizationSpec
from mlx_diffusiongemma.errors import UsageError

DEFAULT_RECIPE = "experts4"
PARTS = (
    "embedding",
    "attention",
    "dense",
    "router",
    "experts",
    "self_conditioning",
    "vision_projection",
    "vision_tower",
    "norms",
)


@dataclass(frozen=True)
class Recipe:
    """A name and the spec of every part that differs from `default`; vision stays as it is."""

    name: str
    default: QuantizationSpec
    parts: Mapping[str, QuantizationSpec]

    def spec_for(self, module: ModuleSpec) -> QuantizationSpec | None:
        """How to pack a module, or None for one that stays as it is.

        None for norms, scalars and the vision tower, and for a matrix whose width is not a
        multiple of the group (MLX cannot pack it).
        """
        part = part_of(module)
        if not module.quantizable or part == "vision_tower":
            return None
        spec = self.parts.get(part, self.default)
        return spec if module.shape[-1] % spec.group_size == 0 else None


def part_of(module: ModuleSpec) -> str:
    """Which part of the model (one of PARTS) a module belongs to."""
    path = module.path
    if path.startswith(f"{TOWER}."):
        return "vision_tower"
    if path.endswith(".embed_vision.embedding_projection"):
        return "vision_projection"
    if not module.quantizable:
        return "norms"
    if module.kind in ("embedding", "experts"):
        return module.kind
    for name, part in (
        (".self_attn.", "attention"),
        (".mlp.", "dense"),
        (".router.", "router"),
        (".self_conditioning.", "self_conditioning"),
    ):
        if name in path:
            return part
    raise ValueError(f"no part of the model holds {path}")


def _experts4() -> Recipe:
    """Experts at 4 bits, everything the canvas is sensitive to at 8, as mlx-vlm converts.

    Uniform 4 bits cost more denoising steps than they save in bytes; the experts are nine tenths
    of the weights and bear it best.
    """
    eight = QuantizationSpec(8, 64)
    sensitive = ("embedding", "attention", "dense", "router")
    return Recipe(
        DEFAULT_RECIPE, QuantizationSpec(4, 64), MappingProxyType(dict.fromkeys(sensitive, eight))
    )


RECIPES: Mapping[str, Recipe] = MappingProxyType({DEFAULT_RECIPE: _experts4()})


def recipe_named(name: str) -> Recipe:
    """The recipe of that name; UsageError names the known ones otherwise."""
    if name not in RECIPES:
        raise UsageError(
            f"There is no recipe named {name!r}.", f"Choose one of: {', '.join(RECIPES)}."
        )
    return RECIPES[name]


def quantization_block(recipe: Recipe, packed: Mapping[str, QuantizationSpec]) -> dict[str, object]:
    """config.json's `quantization`: the recipe's default, then each packed module that differs.

    Exactly what mlx-vlm writes. A module that is not packed must not be listed: mlx-vlm takes a
    listed module for a quantised one.
    """
    default = recipe.default
    block: dict[str, object] = {
        "group_size": default.group_size,
        "bits": default.bits,
        "mode": default.mode,
    }
    for path, spec in packed.items():
        if spec != default:
            override: dict[str, object] = {"group_size": spec.group_size, "bits": spec.bits}
            if spec.mode != "affine":  # an override without a mode means affine
                override["mode"] = spec.mode
            block[path] = override
    return block
