"""Writes weights as a checkpoint folder in the released layout, replacing it as a whole."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from .chat_format import TEMPLATE_FILE
from .sizes import GENERATION_CONFIG, VISION, Sizes, model_config
from .tokenizer import save_tokenizer
from .weights import Weights

MODEL_CARD = Path(__file__).with_name("MODEL_CARD.md")
VISION_SEED = 1


def vision_tensors(sizes: Sizes) -> Weights:
    """A small random, untrained vision tower, so that every family of tensors is present."""
    generator = torch.Generator().manual_seed(VISION_SEED)
    width, head_dim, inner = 32, 16, 32
    tensors: Weights = {}

    def matrix(name: str, *shape: int) -> None:
        tensors[f"model.encoder.{name}"] = torch.randn(*shape, generator=generator) * 0.02

    matrix("embed_vision.embedding_projection.weight", sizes.hidden, width)
    matrix("vision_tower.patch_embedder.input_proj.weight", width, 16 * 16 * 3)
    table = int(str(VISION["position_embedding_size"]))
    matrix("vision_tower.patch_embedder.position_embedding_table", 2, table, width)
    layer = "vision_tower.encoder.layers.0."
    for part in "qkvo":
        matrix(f"{layer}self_attn.{part}_proj.linear.weight", width, width)
    for part in ("gate", "up"):
        matrix(f"{layer}mlp.{part}_proj.linear.weight", inner, width)
    matrix(f"{layer}mlp.down_proj.linear.weight", width, inner)
    for part in ("q", "k"):
        tensors[f"model.encoder.{layer}self_attn.{part}_norm.weight"] = torch.ones(head_dim)
    for norm in (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ):
        tensors[f"model.encoder.{layer}{norm}.weight"] = torch.ones(width)
    return tensors


def released_tensors(weights: Weights, sizes: Sizes) -> Weights:
    """All tensors under their released names; tied copies are not stored."""
    tensors = vision_tensors(sizes)
    for name, value in weights.items():
        if name in ("encoder_scalars", "decoder_scalars"):
            side = "encoder.language_model" if name.startswith("encoder") else "decoder"
            for number in range(len(sizes.layer_types)):
                key = f"model.{side}.layers.{number}.layer_scalar"
                tensors[key] = value.detach()[number : number + 1].clone()
        else:
            tensors[f"model.decoder.{name}"] = value.detach()
    return tensors


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def export(
    weights: Weights,
    sizes: Sizes,
    tokenizer: Tokenizer,
    folder: Path,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Writes the folder beside its place and then swaps it in."""
    fresh = folder.with_name(folder.name + ".partial")
    old = folder.with_name(folder.name + ".old")
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    save_tokenizer(tokenizer, fresh)
    shutil.copyfile(TEMPLATE_FILE, fresh / TEMPLATE_FILE.name)
    if MODEL_CARD.exists():
        shutil.copyfile(MODEL_CARD, fresh / "README.md")
    tensors = released_tensors(weights, sizes)
    stored = {name: tensors[name].to(dtype).contiguous() for name in sorted(tensors)}
    save_file(stored, fresh / "model.safetensors", metadata={"format": "pt"})
    _write_json(fresh / "generation_config.json", GENERATION_CONFIG)
    _write_json(fresh / "config.json", model_config(sizes))
    for file in fresh.iterdir():
        os.chmod(file, 0o644)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
