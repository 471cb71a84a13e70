"""Tiny random DiffusionGemma checkpoints for tests: config, weights, quantised forms, files.

Nothing here is trained; every norm, scale and layer scalar is random and different on purpose, so
that a mix-up changes the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

Weights = dict[str, Any]  # name -> np.ndarray or mx.array

TINY_GENERATION: dict[str, Any] = {
    "max_new_tokens": 48,
    "max_denoising_steps": 6,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "t_min": 0.4,
    "t_max": 0.8,
    "stability_threshold": 1,
    "confidence_threshold": 0.005,
    "eos_token_id": [1, 106, 50],
    "pad_token_id": 0,
}
TINY_VISION: dict[str, Any] = {
    "model_type": "gemma4_vision",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "patch_size": 4,
    "pooling_kernel_size": 3,
    "default_output_length": 4,
    "position_embedding_size": 16,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "standardize": True,
    "use_clipped_linears": False,
    "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
}
_TOP = {
    "model_type",
    "architectures",
    "canvas_length",
    "boi_token_id",
    "eoi_token_id",
    "image_token_id",
    "dtype",
    "vision_config",
    "generation_config",
    "quantization",
    "quantization_config",
}


def tiny_config(**overrides: Any) -> dict[str, Any]:
    """A config.json dict: three layers (sliding, sliding, full), window 8, canvas 16, 4 experts.

    Overrides of top-level names (model_type, canvas_length, vision_config, quantization, ...) go
    to the top, all others to text_config. All widths are multiples of 64, so everything can be
    quantised. `vision_config=TINY_VISION` adds the vision tower.
    """
    text: dict[str, Any] = {
        "model_type": "diffusion_gemma_text",
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 128,
        "moe_intermediate_size": 64,
        "num_experts": 4,
        "top_k_experts": 2,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_global_key_value_heads": 1,
        "head_dim": 16,
        "global_head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
        "tie_word_embeddings": True,
        "sliding_window": 8,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": 1_000_000.0,
                "partial_rotary_factor": 0.25,
            },
        },
        "final_logit_softcapping": 30.0,
        "use_bidirectional_attention": "vision",
    }
    config: dict[str, Any] = {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma",
        "canvas_length": 16,
        "boi_token_id": 253,
        "eoi_token_id": 255,
        "image_token_id": 254,
        "eos_token_id": [1, 106, 50],
        "tie_word_embeddings": True,
        "dtype": "float32",
        "text_config": text,
    }
    for name, value in overrides.items():
        (config if name in _TOP else text)[name] = value
    return config


def tiny_weights(config: Mapping[str, Any], seed: int = 0) -> Weights:
    """Random float32 weights in the original's names (vision too when config has a tower)."""
    rng = np.random.default_rng(seed)
    weights: Weights = {}

    def matrix(name: str, *shape: int) -> None:
        values = rng.normal(size=shape) / np.sqrt(shape[-1])
        weights[name] = values.astype(np.float32)

    def norm(name: str, size: int) -> None:
        weights[name] = rng.uniform(0.5, 1.5, size).astype(np.float32)

    text = config["text_config"]
    width, dense = text["hidden_size"], text["intermediate_size"]
    matrix("model.decoder.embed_tokens.weight", text["vocab_size"], width)
    norm("model.decoder.norm.weight", width)
    norm("model.decoder.self_conditioning.pre_norm.weight", width)
    for part in ("gate_proj", "up_proj"):
        matrix(f"model.decoder.self_conditioning.{part}.weight", dense, width)
    matrix("model.decoder.self_conditioning.down_proj.weight", width, dense)
    for index in range(text["num_hidden_layers"]):
        _layer(f"model.decoder.layers.{index}", text, index, matrix, norm)
        norm(f"model.encoder.language_model.layers.{index}.layer_scalar", 1)
    if config.get("vision_config"):
        _vision(config["vision_config"], width, matrix, norm)
    return weights


def _layer(
    path: str,
    text: Mapping[str, Any],
    index: int,
    matrix: Callable[..., None],
    norm: Callable[[str, int], None],
) -> None:
    width, dense, moe = (text[f"{n}_size"] for n in ("hidden", "intermediate", "moe_intermediate"))
    experts, heads = text["num_experts"], text["num_attention_heads"]
    last = index == text["num_hidden_layers"] - 1
    full = last or text["layer_types"][index] == "full_attention"
    head_dim = text["global_head_dim"] if full else text["head_dim"]
    kv_heads = text["num_key_value_heads"]
    if full and text.get("num_global_key_value_heads"):
        kv_heads = text["num_global_key_value_heads"]
    for name in (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "pre_feedforward_layernorm_2",
        "post_feedforward_layernorm",
        "post_feedforward_layernorm_1",
        "post_feedforward_layernorm_2",
    ):
        norm(f"{path}.{name}.weight", width)
    norm(f"{path}.layer_scalar", 1)
    matrix(f"{path}.self_attn.q_proj.weight", heads * head_dim, width)
    matrix(f"{path}.self_attn.k_proj.weight", kv_heads * head_dim, width)
    if not full:
        matrix(f"{path}.self_attn.v_proj.weight", kv_heads * head_dim, width)
    matrix(f"{path}.self_attn.o_proj.weight", width, heads * head_dim)
    norm(f"{path}.self_attn.q_norm.weight", head_dim)
    norm(f"{path}.self_attn.k_norm.weight", head_dim)
    matrix(f"{path}.mlp.gate_proj.weight", dense, width)
    matrix(f"{path}.mlp.up_proj.weight", dense, width)
    matrix(f"{path}.mlp.down_proj.weight", width, dense)
    matrix(f"{path}.router.proj.weight", experts, width)
    norm(f"{path}.router.scale", width)
    norm(f"{path}.router.per_expert_scale", experts)
    matrix(f"{path}.experts.gate_up_proj", experts, 2 * moe, width)
    matrix(f"{path}.experts.down_proj", experts, width, moe)


def _vision(
    vision: Mapping[str, Any],
    text_width: int,
    matrix: Callable[..., None],
    norm: Callable[[str, int], None],
) -> None:
    tower, width = "model.encoder.vision_tower", vision["hidden_size"]
    matrix(f"{tower}.patch_embedder.input_proj.weight", width, 3 * vision["patch_size"] ** 2)
    matrix(
        f"{tower}.patch_embedder.position_embedding_table",
        2,
        vision["position_embedding_size"],
        width,
    )
    norm(f"{tower}.std_bias", width)
    norm(f"{tower}.std_scale", width)
    for index in range(vision["num_hidden_layers"]):
        path = f"{tower}.encoder.layers.{index}"
        for name in (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ):
            norm(f"{path}.{name}.weight", width)
        for name in "qkvo":
            matrix(f"{path}.self_attn.{name}_proj.linear.weight", width, width)
        norm(f"{path}.self_attn.q_norm.weight", vision["head_dim"])
        norm(f"{path}.self_attn.k_norm.weight", vision["head_dim"])
        inner = vision["intermediate_size"]
        matrix(f"{path}.mlp.gate_proj.linear.weight", inner, width)
        matrix(f"{path}.mlp.up_proj.linear.weight", inner, width)
        matrix(f"{path}.mlp.down_proj.linear.weight", width, inner)
    matrix("model.encoder.embed_vision.embedding_projection.weight", text_width, width)


def mlx_names(weights: Weights) -> Weights:
    """The same weights in the MLX conversions' names: fused experts end in `.weight`."""
    fused = (".experts.gate_up_proj", ".experts.down_proj")
    return {f"{n}.weight" if n.endswith(fused) else n: value for n, value in weights.items()}


def unfuse_experts(weights: Weights) -> Weights:
    """The same weights with one tensor an expert: `experts.{e}.gate_proj.weight` and so on."""
    result: Weights = {}
    for name, value in mlx_names(weights).items():
        path, _, suffix = name.rpartition(".")
        if path.endswith(".experts.gate_up_proj"):
            base = path.removesuffix(".gate_up_proj")
            half = value.shape[1] // 2
            for expert in range(value.shape[0]):
                result[f"{base}.{expert}.gate_proj.{suffix}"] = value[expert, :half]
                result[f"{base}.{expert}.up_proj.{suffix}"] = value[expert, half:]
        elif path.endswith(".experts.down_proj"):
            base = path.removesuffix(".down_proj")
            for expert in range(value.shape[0]):
                result[f"{base}.{expert}.down_proj.{suffix}"] = value[expert]
        else:
            result[name] = value
    return result


def quantize_weights(
    weights: Weights,
    *,
    bits: int = 4,
    group_size: int = 64,
    mode: str = "affine",
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    skip: tuple[str, ...] = (),
    dtype: mx.Dtype = mx.float32,
) -> tuple[Weights, dict[str, Any]]:
    """(weights, `quantization` block) with every text matrix quantised by mx.quantize.

    A matrix whose width is not a multiple of the group stays as it is.
    `overrides` maps a module path to its own {bits, group_size[, mode]} (no mode = affine); paths
    that contain a text of `skip` stay as they are. `dtype` is the type before quantisation, hence
    that of affine scales and biases.
    """
    block: dict[str, Any] = {"group_size": group_size, "bits": bits, "mode": mode}
    block.update({path: dict(value) for path, value in (overrides or {}).items()})
    result: Weights = {}
    for name, value in mlx_names(weights).items():
        path = name.removesuffix(".weight")
        array = mx.array(value).astype(dtype)
        text = "vision_tower" not in name and array.ndim > 1 and name.endswith(".weight")
        spec = (overrides or {}).get(path, block)
        whole = array.ndim > 0 and array.shape[-1] % spec["group_size"] == 0
        if not text or not whole or any(part in path for part in skip):
            result[name] = array
            continue
        parts = mx.quantize(
            array,
            group_size=spec["group_size"],
            bits=spec["bits"],
            mode=spec.get("mode", "affine"),
        )
        for part, suffix in zip(parts, ("weight", "scales", "biases"), strict=False):
            result[f"{path}.{suffix}"] = part
    return result, block


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    weights: Weights,
    *,
    shards: int = 1,
    generation: Mapping[str, Any] | None = None,
    index: bool = True,
    dtype: mx.Dtype | None = None,
) -> Path:
    """Write config.json, the weights and, when given, generation_config.json; returns `folder`.

    One shard is `model.safetensors` without an index; several are `model-0000i-of-0000n` with an
    index unless `index` is false. `dtype` casts floating tensors. No tokenizer is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation, indent=1))
    arrays = {name: mx.array(value) for name, value in weights.items()}
    if dtype is not None:
        floating = (mx.float32, mx.float16, mx.bfloat16)
        arrays = {n: a.astype(dtype) if a.dtype in floating else a for n, a in arrays.items()}
    if shards == 1:
        mx.save_safetensors(str(folder / "model.safetensors"), arrays, {"format": "mlx"})
        return folder
    names = list(arrays)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: arrays[name] for name in names[shard::shards]}
        mx.save_safetensors(str(folder / file), part, {"format": "mlx"})
        weight_map.update(dict.fromkeys(part, file))
    if index:
        total = sum(array.nbytes for array in arrays.values())
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map})
        )
    return folder
