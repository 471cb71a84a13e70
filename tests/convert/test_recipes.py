"""The default recipe on the released model's config: bits, bytes and files, without its weights."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mlx_diffusiongemma.checkpoint.modules import ModuleSpec, expected_modules, vision_modules
from mlx_diffusiongemma.config import QuantizationSpec, parse_config
from mlx_diffusiongemma.convert.converter import MAX_SHARD_BYTES
from mlx_diffusiongemma.convert.quantize import planned_tensors
from mlx_diffusiongemma.convert.recipes import PARTS, part_of, quantization_block, recipe_named
from mlx_diffusiongemma.convert.writer import plan_shards
from mlx_diffusiongemma.errors import UsageError

DATA = Path(__file__).parents[1] / "data"
# total_size of mlx-community's 4-bit conversion of the released model
PUBLISHED_BYTES = 16_542_844_632
RECIPE = recipe_named("experts4")


@pytest.fixture(scope="module")
def modules() -> list[ModuleSpec]:
    config = parse_config(json.loads((DATA / "real_config.json").read_text()), None)
    return [*expected_modules(config).values(), *vision_modules(config).values()]


def test_released_model_becomes_the_published_bytes(modules: list[ModuleSpec]) -> None:
    groups = [planned_tensors(module, "BF16", RECIPE.spec_for(module)) for module in modules]
    total = sum(tensor.nbytes for group in groups for tensor in group)
    assert total == PUBLISHED_BYTES
    shards = plan_shards(groups, MAX_SHARD_BYTES)
    assert len(shards) == 4
    sizes = [sum(tensor.nbytes for group in shard for tensor in group) for shard in shards]
    assert max(sizes) <= MAX_SHARD_BYTES and sum(sizes) == total


def test_released_model_has_the_published_block(modules: list[ModuleSpec]) -> None:
    packed = {m.path: spec for m in modules if (spec := RECIPE.spec_for(m)) is not None}
    block = quantization_block(RECIPE, packed)
    assert [block.pop(key) for key in ("group_size", "bits", "mode")] == [64, 4, "affine"]
    assert len(block) == 236
    assert all(value == {"group_size": 64, "bits": 8} for value in block.values())
    default = Counter(part_of(m) for m in modules if m.path in packed and m.path not in block)
    assert default == {"experts": 60, "self_conditioning": 3, "vision_projection": 1}
    eight = Counter(part_of(m) for m in modules if m.path in block)
    assert eight == {"embedding": 1, "attention": 115, "dense": 90, "router": 30}


def test_every_module_belongs_to_a_part(modules: list[ModuleSpec]) -> None:
    assert {part_of(module) for module in modules} == set(PARTS)
    assert all(RECIPE.spec_for(m) is None for m in modules if part_of(m) == "vision_tower")
    with pytest.raises(ValueError, match="no part"):
        part_of(ModuleSpec("model.decoder.other", (8, 64), "linear"))


def test_widths_that_are_no_multiple_of_the_group_stay() -> None:
    path = "model.decoder.layers.0.experts.down_proj"
    assert RECIPE.spec_for(ModuleSpec(path, (4, 64, 96), "experts")) is None
    assert RECIPE.spec_for(ModuleSpec(path, (4, 64, 128), "experts")) == QuantizationSpec(4, 64)


def test_unknown_recipe_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'experts5'") as caught:
        recipe_named("experts5")
    assert "experts4" in str(caught.value.hint)
