"""Quantised checkpoints: the packing of every module is checked against the config."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from mlx_diffusiongemma.config import QuantizationSpec
from tests.checkpoints import quantize_weights, tiny_config, tiny_weights, unfuse_experts
from tests.unit.checkpoint.test_plan import plan, refusal

EMBED = "model.decoder.embed_tokens"
EXPERTS = "model.decoder.layers.0.experts.gate_up_proj"
NORM = "model.decoder.norm"


def packed(**how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Quantised weights and the config that goes with them."""
    weights, block = quantize_weights(tiny_weights(tiny_config()), **how)
    return weights, tiny_config(quantization=block)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group_size", [32, 64])
def test_affine(bits: int, group_size: int) -> None:
    found = plan(*packed(bits=bits, group_size=group_size))
    assert found.modules[EMBED].quantization == QuantizationSpec(bits, group_size)
    assert found.modules[EXPERTS].quantization == QuantizationSpec(bits, group_size)
    assert found.modules[NORM].quantization is None
    assert len(found.modules[EMBED].tensors) == 3


@pytest.mark.parametrize(
    ("mode", "bits", "group_size"), [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
)
def test_other_modes_with_the_embedding_packed_too(mode: str, bits: int, group_size: int) -> None:
    found = plan(*packed(mode=mode, bits=bits, group_size=group_size))
    assert found.modules[EMBED].quantization == QuantizationSpec(bits, group_size, mode)
    assert set(found.modules[EMBED].tensors) == {f"{EMBED}.weight", f"{EMBED}.scales"}


def test_an_affine_override_under_another_default() -> None:
    override = {EMBED: {"bits": 8, "group_size": 64}}
    found = plan(*packed(mode="mxfp4", bits=4, group_size=32, overrides=override))
    assert found.modules[EMBED].quantization == QuantizationSpec(8, 64)
    assert found.modules[EXPERTS].quantization == QuantizationSpec(4, 32, "mxfp4")


def test_a_module_without_scales_is_not_quantised() -> None:
    found = plan(*packed(skip=("router", "self_conditioning")))
    assert found.modules["model.decoder.layers.0.router.proj"].quantization is None
    assert found.modules["model.decoder.self_conditioning.gate_proj"].quantization is None


def test_unfused_experts() -> None:
    weights, config = packed()
    found = plan(unfuse_experts(weights), config)
    assert found.modules[EXPERTS].quantization == QuantizationSpec(4, 64)
    assert len(found.modules[EXPERTS].tensors[f"{EXPERTS}.scales"].names) == 8


def test_unfused_experts_with_overrides_of_their_own() -> None:
    weights, config = packed(overrides={EXPERTS: {"bits": 8, "group_size": 32}})
    block = config["quantization"]
    spec = block.pop(EXPERTS)
    base = EXPERTS.removesuffix(".gate_up_proj")
    for expert in range(4):
        for part in ("gate_proj", "up_proj"):
            block[f"{base}.{expert}.{part}"] = spec
    assert plan(unfuse_experts(weights), config).modules[EXPERTS].quantization == (
        QuantizationSpec(8, 32)
    )
    del block[f"{base}.1.up_proj"]
    assert "different ways" in refusal(unfuse_experts(weights), config)


def test_scales_need_a_quantization_block() -> None:
    weights, _ = packed()
    assert "no quantization block" in refusal(weights, tiny_config())


def test_a_packed_weight_needs_scales() -> None:
    weights, config = packed()
    del weights[f"{EMBED}.scales"], weights[f"{EMBED}.biases"]
    assert refusal(weights, config) == (
        f"'{EMBED}.weight' is packed, but '{EMBED}.scales' is missing."
    )


def test_biases_without_scales() -> None:
    weights, config = packed()
    del weights[f"{EMBED}.scales"]
    assert f"'{EMBED}.biases' is not part of this model" in refusal(weights, config)


def test_scales_without_a_weight() -> None:
    weights, config = packed()
    del weights[f"{EMBED}.weight"]
    assert refusal(weights, config) == f"The tensor '{EMBED}.weight' is missing."


def test_affine_needs_biases() -> None:
    weights, config = packed()
    del weights[f"{EMBED}.biases"]
    assert refusal(weights, config) == f"The tensor '{EMBED}.biases' is missing."


def test_other_modes_have_no_biases() -> None:
    weights, config = packed(mode="mxfp4", group_size=32)
    weights[f"{EMBED}.biases"] = weights[f"{EMBED}.scales"]
    assert "does not fit the mode mxfp4" in refusal(weights, config)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"bits": 8}, "has the shape [256, 8], but config.json calls for [256, 16]"),
        ({"group_size": 32}, "has the shape [256, 1], but config.json calls for [256, 2]"),
        ({"group_size": 128}, "cannot be quantised with bits 4 and group_size 128"),
        ({"mode": "mxfp4", "group_size": 32}, "does not fit the mode mxfp4"),
    ],
)
def test_a_block_that_does_not_fit_the_tensors(change: dict[str, Any], problem: str) -> None:
    weights, config = packed()
    config["quantization"].update(change)
    assert problem in refusal(weights, config)


def test_wrong_types_of_packed_tensors() -> None:
    weights, config = packed()
    other = dict(weights)
    other[f"{EMBED}.weight"] = mx.zeros((256, 8), mx.int32)
    assert "has the dtype I32, not U32" in refusal(other, config)
    other = dict(weights)
    other[f"{EMBED}.scales"] = mx.zeros((256, 1), mx.uint8)
    assert "has the dtype U8, not BF16 or F16 or F32" in refusal(other, config)
