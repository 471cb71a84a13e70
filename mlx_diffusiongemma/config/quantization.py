"""The `quantization` block of MLX conversions: which module has which bits, group and mode.

Whether a module is quantised at all is decided by its tensors (`<module>.scales`), not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mlx_diffusiongemma.config.fields import Fields
from mlx_diffusiongemma.config.jsonfile import shown
from mlx_diffusiongemma.errors import ModelError

AFFINE_BITS = (2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
FIXED_MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}  # mode: bits, group
MODES = ("affine", *FIXED_MODES)
_KEYS = ("quantization", "quantization_config")
_HINT = "Use an MLX conversion of this model, or convert the original weights."


@dataclass(frozen=True)
class QuantizationSpec:
    """How one matrix is packed: bits a value, values a group, and MLX's mode name."""

    bits: int
    group_size: int
    mode: str = "affine"


@dataclass(frozen=True)
class QuantizationConfig:
    """The default spec and the modules that differ from it, by path."""

    default: QuantizationSpec
    overrides: Mapping[str, QuantizationSpec]

    def for_module(self, path: str) -> QuantizationSpec:
        """The spec of a module, by its path in the checkpoint (no `.weight` at the end).

        The exact path wins; then the same path with or without a leading `model.` or
        `language_model.`, as found in published conversions.
        """
        return self.override_of(path) or self.default

    def override_of(self, path: str) -> QuantizationSpec | None:
        """The override for a module, or None where the default holds."""
        for name in _aliases(path):
            if name in self.overrides:
                return self.overrides[name]
        return None


def _aliases(path: str) -> tuple[str, ...]:
    bare = path.removeprefix("language_model.").removeprefix("model.")
    return (path, f"model.{bare}", bare, f"language_model.model.{bare}", f"language_model.{bare}")


def parse_quantization(fields: Fields) -> QuantizationConfig | None:
    """Read the block from config.json's top (or text_config); None when there is none.

    Raises ModelError for values MLX has no kernels for, for two blocks that disagree, and for
    the blocks of other tools (ModelOpt, AWQ, compressed-tensors, ...), which it names.
    """
    section = None
    for holder in (fields, fields.section("text_config")):
        for key in _KEYS if holder else ():
            assert holder is not None
            found = holder.section(key)
            if found is None:
                continue
            _refuse_foreign(found)
            if section is None:
                section = found
            elif dict(section.values) != dict(found.values):
                raise ModelError(
                    f"{section.prefix} and {found.prefix} in {fields.file} disagree.", _HINT
                )
    if section is None:
        return None
    overrides = {}
    for name, value in section.values.items():
        if isinstance(value, Mapping):
            override = section.section(name)
            assert override is not None
            overrides[name] = _spec(override)
    return QuantizationConfig(_spec(section), MappingProxyType(overrides))


def _refuse_foreign(section: Fields) -> None:
    method = section.values.get("quant_method") or section.values.get("quant_algo")
    if method is None or method == "mlx":
        return
    producer = section.values.get("producer")
    name: Any = producer.get("name") if isinstance(producer, Mapping) else None
    detail = f" by {shown(name)}" if name else ""
    raise ModelError(
        f"{section.prefix} in {section.file} says the weights are quantised as "
        f"{shown(method)}{detail}, which is not an MLX format.",
        _HINT,
    )


def _spec(fields: Fields) -> QuantizationSpec:
    """Bits, group and mode of one object; without `mode` it is affine, whatever the default."""
    mode = fields.choice("mode", MODES, "affine")
    fixed = FIXED_MODES.get(mode)
    bits = fields.integer("bits", fixed[0] if fixed else 4)
    group_size = fields.integer("group_size", fixed[1] if fixed else 64)
    if fixed:
        if bits != fixed[0]:
            fields.fail("bits", f"be {fixed[0]} with mode {mode}")
        if group_size != fixed[1]:
            fields.fail("group_size", f"be {fixed[1]} with mode {mode}")
    else:
        if bits not in AFFINE_BITS:
            fields.fail("bits", f"be one of {', '.join(map(str, AFFINE_BITS))}")
        if group_size not in AFFINE_GROUPS:
            fields.fail("group_size", f"be one of {', '.join(map(str, AFFINE_GROUPS))}")
    return QuantizationSpec(bits, group_size, mode)
