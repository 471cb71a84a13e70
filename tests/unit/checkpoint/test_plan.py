"""Names and completeness: every form that is accepted, everything else refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mlx_diffusiongemma.checkpoint.header import TensorInfo
from mlx_diffusiongemma.checkpoint.plan import WeightPlan, plan_weights
from mlx_diffusiongemma.config import parse_config
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import (
    TINY_VISION,
    mlx_names,
    quantize_weights,
    tiny_config,
    tiny_weights,
    unfuse_experts,
)
from tests.unit.checkpoint.tables import checkpoint, tensor

LAYER = "model.decoder.layers.0"
ENCODER = "model.encoder.language_model"
DTYPES = {
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "uint32": "U32",
    "uint8": "U8",
    "int32": "I32",
}


def infos(weights: Mapping[str, Any]) -> Iterator[TensorInfo]:
    for name, value in weights.items():
        dtype = DTYPES[str(value.dtype).removeprefix("mlx.core.")]
        yield tensor(name, dtype, tuple(value.shape))


def plan(weights: Mapping[str, Any], config: dict[str, Any] | None = None) -> WeightPlan:
    return plan_weights(
        checkpoint(infos(weights)), parse_config(tiny_config() if config is None else config, None)
    )


def refusal(weights: Mapping[str, Any], config: dict[str, Any] | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        plan(weights, config)
    assert caught.value.message.endswith(".") and len(caught.value.message) < 400
    return caught.value.message


@pytest.fixture
def weights() -> dict[str, Any]:
    return tiny_weights(tiny_config())


def test_the_original_names(weights: dict[str, Any]) -> None:
    found = plan(weights)
    assert found.ignored == found.vision == ()
    experts = found.modules[f"{LAYER}.experts.gate_up_proj"]
    assert set(experts.tensors) == {f"{LAYER}.experts.gate_up_proj.weight"}
    assert experts.tensors[f"{LAYER}.experts.gate_up_proj.weight"].names == (
        f"{LAYER}.experts.gate_up_proj",
    )


@pytest.mark.parametrize("rename", [mlx_names, unfuse_experts])
def test_other_names_plan_to_the_same_modules(weights: dict[str, Any], rename: Any) -> None:
    assert set(plan(rename(weights)).modules) == set(plan(weights).modules)


def test_names_without_the_outer_prefix(weights: dict[str, Any]) -> None:
    inner = {name.removeprefix("model."): value for name, value in weights.items()}
    assert set(plan(inner).modules) == set(plan(weights).modules)


def test_stacked_gate_and_up(weights: dict[str, Any]) -> None:
    for layer in range(3):
        path = f"model.decoder.layers.{layer}.experts"
        fused = weights.pop(f"{path}.gate_up_proj")
        weights[f"{path}.gate_proj.weight"] = fused[:, :64]
        weights[f"{path}.up_proj.weight"] = fused[:, 64:]
    source = plan(weights).modules[f"{LAYER}.experts.gate_up_proj"].tensors
    assert source[f"{LAYER}.experts.gate_up_proj.weight"].names == (
        f"{LAYER}.experts.gate_proj.weight",
        f"{LAYER}.experts.up_proj.weight",
    )


def test_vision_tensors_are_recognised_and_left(weights: dict[str, Any]) -> None:
    config = tiny_config(vision_config={**TINY_VISION, "num_hidden_layers": 5})
    found = plan(tiny_weights(config), config)
    assert len(found.vision) == 4 + 5 * 13 + 1 and set(found.modules) == set(plan(weights).modules)
    # The tower's files decide, not vision_config: text needs neither.
    assert plan(tiny_weights(config)).vision == found.vision


def test_copies_buffers_and_clips_are_ignored(weights: dict[str, Any]) -> None:
    extra = {
        "lm_head.weight": weights["model.decoder.embed_tokens.weight"],
        f"{ENCODER}.embed_tokens.weight": weights["model.decoder.embed_tokens.weight"],
        f"{ENCODER}.norm.weight": weights["model.decoder.norm.weight"],
        f"{ENCODER}.layers.0.mlp.up_proj.weight": weights[f"{LAYER}.mlp.up_proj.weight"],
        f"{ENCODER}.layers.0.experts.down_proj": weights[f"{LAYER}.experts.down_proj"],
        f"{ENCODER}.layers.0.router.scale": weights[f"{LAYER}.router.scale"],
        f"{ENCODER}.rotary_emb.inv_freq": weights[f"{LAYER}.router.scale"],
        "model.decoder.rotary_emb.full_attention_inv_freq": weights[f"{LAYER}.router.scale"],
        "model.encoder.embed_vision.embedding.weight": weights[f"{LAYER}.router.scale"],
        "model.encoder.vision_tower.encoder.layers.0.mlp.up_proj.input_max": weights[
            f"{LAYER}.layer_scalar"
        ],
    }
    found = plan({**weights, **extra})
    assert set(found.ignored) == set(extra)
    assert set(found.modules) == set(plan(weights).modules)


@pytest.mark.parametrize(
    "name", ["lm_head.weight", f"{ENCODER}.norm.weight", f"{ENCODER}.layers.0.experts.down_proj"]
)
def test_a_copy_of_another_shape_is_refused(weights: dict[str, Any], name: str) -> None:
    weights[name] = weights[f"{LAYER}.router.per_expert_scale"]
    assert name in refusal(weights) and "copy" in refusal(weights)


def test_quantised_copies_are_ignored(weights: dict[str, Any]) -> None:
    packed, block = quantize_weights(weights)
    for part in ("weight", "scales", "biases"):
        packed[f"lm_head.{part}"] = packed[f"model.decoder.embed_tokens.{part}"]
    assert len(plan(packed, tiny_config(quantization=block)).ignored) == 3


@pytest.mark.parametrize(
    "name",
    [
        "model.decoder.layers.3.input_layernorm.weight",
        "model.decoder.layers.2.self_attn.v_proj.weight",
        "model.decoder.layers.0.self_attn.q_proj.bias",
        "model.decoder.layers.0.experts.4.down_proj.bias",
        "model.decoder.norm.biases",
        "model.decoder.norm.scales",
        "model.encoder.language_model.self_conditioning.extra.weight",
        "model.encoder.language_model.layers.3.layer_scalar",
        "model.encoder.vision_tower.surprise",
        "model.encoder.audio_tower.layers.0.weight",
        "lm_head.bias",
        "",
    ],
)
def test_an_unknown_tensor_is_named(weights: dict[str, Any], name: str) -> None:
    weights[name] = weights["model.decoder.norm.weight"]
    assert refusal(weights) == f"The tensor '{name}' is not part of this model."


def test_many_unknown_tensors_are_counted_and_three_named(weights: dict[str, Any]) -> None:
    for number in range(7):
        weights[f"extra.{number}"] = weights["model.decoder.norm.weight"]
    assert refusal(weights) == (
        "7 tensors are not part of this model, among them: 'extra.0', 'extra.1', 'extra.2'."
    )


@pytest.mark.parametrize(
    "name",
    [
        "model.decoder.embed_tokens.weight",
        "model.decoder.norm.weight",
        "model.decoder.self_conditioning.pre_norm.weight",
        f"{LAYER}.self_attn.v_proj.weight",
        f"{LAYER}.router.per_expert_scale",
        f"{LAYER}.layer_scalar",
        f"{ENCODER}.layers.1.layer_scalar",
    ],
)
def test_a_missing_tensor_is_named(weights: dict[str, Any], name: str) -> None:
    del weights[name]
    assert refusal(weights) == f"The tensor '{name}' is missing."


def test_a_missing_expert_is_named(weights: dict[str, Any]) -> None:
    unfused = unfuse_experts(weights)
    del unfused[f"{LAYER}.experts.2.up_proj.weight"]
    assert refusal(unfused) == f"The tensor '{LAYER}.experts.2.up_proj.weight' is missing."


def test_an_expert_too_many_is_named(weights: dict[str, Any]) -> None:
    unfused = unfuse_experts(weights)
    name = f"{LAYER}.experts.4.down_proj.weight"
    unfused[name] = unfused[f"{LAYER}.experts.0.down_proj.weight"]
    assert refusal(unfused) == f"The tensor '{name}' is not part of this model."


def test_a_huge_number_of_experts_is_only_a_claim(weights: dict[str, Any]) -> None:
    text = refusal(unfuse_experts(weights), tiny_config(num_experts=2**31 - 1))
    assert text.startswith(f"{2 * (2**31 - 1) - 8} tensors are missing") and "experts.4." in text


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        (f"{LAYER}.experts.down_proj.weight", f"{LAYER}.experts.down_proj"),
        ("decoder.norm.weight", "model.decoder.norm.weight"),
        (f"{LAYER}.experts.1.down_proj.weight", f"{LAYER}.experts.down_proj"),
    ],
)
def test_the_same_tensor_in_two_forms_is_refused(
    weights: dict[str, Any], name: str, twin: str
) -> None:
    weights[name] = weights[twin]
    assert "are the same tensor" in refusal(weights)


def test_the_same_expert_twice_is_refused(weights: dict[str, Any]) -> None:
    unfused = unfuse_experts(weights)
    name = f"{LAYER}.experts.1.down_proj.weight"
    unfused[name.replace(".1.", ".01.")] = unfused[name]
    assert "are the same tensor" in refusal(unfused)


def test_a_wrong_shape_says_what_was_expected(weights: dict[str, Any]) -> None:
    weights[f"{LAYER}.mlp.up_proj.weight"] = weights[f"{LAYER}.mlp.down_proj.weight"]
    assert refusal(weights) == (
        f"The tensor '{LAYER}.mlp.up_proj.weight' has the shape [64, 128], "
        "but config.json calls for [128, 64]."
    )


def test_integer_weights_are_refused(weights: dict[str, Any]) -> None:
    weights["model.decoder.norm.weight"] = weights["model.decoder.norm.weight"].astype("int32")
    assert "has the dtype I32, not BF16 or F16 or F32" in refusal(weights)


def test_experts_of_different_types_are_refused(weights: dict[str, Any]) -> None:
    unfused = unfuse_experts(weights)
    name = f"{LAYER}.experts.1.down_proj.weight"
    unfused[name] = unfused[name].astype("float16")
    assert "has the dtype F16, not F32 like the rest" in refusal(unfused)


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        (f"{LAYER}.self_attn.q_proj.weight_scale_2", "ModelOpt"),
        (f"{LAYER}.self_attn.q_proj.weight_scale", "ModelOpt"),
        (f"{LAYER}.self_attn.q_proj.weight_scale_inv", "FP8"),
        (f"{LAYER}.self_attn.q_proj.weight_packed", "compressed-tensors"),
        (f"{LAYER}.self_attn.q_proj.qweight", "AWQ or GPTQ"),
        (f"{LAYER}.self_attn.q_proj.weight.absmax", "bitsandbytes"),
        (f"{LAYER}.self_attn.q_proj.lora_A.weight", "LoRA"),
    ],
)
def test_formats_of_other_tools_are_named(weights: dict[str, Any], name: str, tool: str) -> None:
    weights[name] = weights["model.decoder.norm.weight"]
    assert tool in refusal(weights)
