"""The quantisation block: both key names, overrides, modes, and the blocks of other tools."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_diffusiongemma.config import QuantizationConfig, QuantizationSpec, parse_config
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import tiny_config

AFFINE4 = {"group_size": 64, "bits": 4, "mode": "affine"}
EMBED = "model.decoder.embed_tokens"


def parse(**blocks: Any) -> QuantizationConfig:
    found = parse_config(tiny_config(**blocks), None).quantization
    assert found is not None
    return found


@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
def test_both_key_names(key: str) -> None:
    found = parse(**{key: AFFINE4})
    assert found.default == QuantizationSpec(4, 64, "affine") and dict(found.overrides) == {}


def test_equal_blocks_under_both_names() -> None:
    assert parse(quantization=AFFINE4, quantization_config=AFFINE4).default.bits == 4


def test_an_override_without_mode_is_affine_whatever_the_default() -> None:
    block = {"group_size": 32, "bits": 4, "mode": "mxfp4", EMBED: {"group_size": 64, "bits": 8}}
    found = parse(quantization=block)
    assert found.default == QuantizationSpec(4, 32, "mxfp4")
    assert found.for_module(EMBED) == QuantizationSpec(8, 64, "affine")
    assert found.for_module("model.decoder.norm") == found.default


@pytest.mark.parametrize(
    "written",
    [EMBED, "decoder.embed_tokens", f"language_model.{EMBED}"],
)
def test_overrides_are_found_with_other_prefixes(written: str) -> None:
    found = parse(quantization={**AFFINE4, written: {"bits": 8, "group_size": 32}})
    assert found.for_module(EMBED) == QuantizationSpec(8, 32)
    assert found.for_module("decoder.embed_tokens") == QuantizationSpec(8, 32)


@pytest.mark.parametrize(
    ("block", "spec"),
    [
        ({"mode": "mxfp4"}, QuantizationSpec(4, 32, "mxfp4")),
        ({"mode": "mxfp8"}, QuantizationSpec(8, 32, "mxfp8")),
        ({"mode": "nvfp4"}, QuantizationSpec(4, 16, "nvfp4")),
        ({"bits": 3}, QuantizationSpec(3, 64, "affine")),
        ({"bits": 6, "group_size": 128}, QuantizationSpec(6, 128, "affine")),
    ],
)
def test_absent_numbers_take_the_modes_own(block: dict[str, Any], spec: QuantizationSpec) -> None:
    assert parse(quantization=block).default == spec


def test_other_entries_are_ignored() -> None:
    found = parse(quantization={**AFFINE4, EMBED: False, "note": "text", "quant_method": None})
    assert dict(found.overrides) == {}


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"bits": 7}, "quantization.bits"),
        ({"bits": 1}, "quantization.bits"),
        ({"bits": "4"}, "quantization.bits"),
        ({"bits": True}, "quantization.bits"),
        ({"group_size": 48}, "quantization.group_size"),
        ({"group_size": -64}, "quantization.group_size"),
        ({"mode": "int4"}, "quantization.mode"),
        ({"mode": "mxfp4", "group_size": 64}, "quantization.group_size"),
        ({"mode": "nvfp4", "bits": 8}, "quantization.bits"),
        ({**AFFINE4, EMBED: {"bits": 9}}, f"quantization.{EMBED}.bits"),
    ],
)
def test_a_wrong_value_is_named(block: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse(quantization=block)
    assert caught.value.message.startswith(f"{field} in config.json must ")


def test_a_block_that_is_no_object() -> None:
    with pytest.raises(ModelError, match=r"^quantization in config\.json must be an object"):
        parse(quantization=4)


def test_blocks_that_disagree() -> None:
    with pytest.raises(ModelError, match=r"quantization and quantization_config .* disagree"):
        parse(quantization=AFFINE4, quantization_config={"bits": 8})


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"quant_algo": "NVFP4", "producer": {"name": "modelopt"}}, "modelopt"),
        ({"quant_method": "fp8"}, "fp8"),
    ],
)
def test_formats_of_other_tools_are_refused_by_name(block: dict[str, Any], name: str) -> None:
    with pytest.raises(ModelError, match=name) as caught:
        parse(quantization_config=block)
    assert "not an MLX format" in caught.value.message and caught.value.hint


def test_a_foreign_block_in_text_config_is_seen() -> None:
    config = tiny_config()
    config["text_config"]["quantization_config"] = {"quant_method": "gptq"}
    with pytest.raises(ModelError, match="gptq"):
        parse_config(config, None)
