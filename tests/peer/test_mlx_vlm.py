"""Files go both ways between this project and mlx-vlm, with the same logits in float32.

    MLX_VLM_PYTHON=/path/to/python pytest -m peer tests/peer

MLX_VLM_PYTHON is a Python with mlx-vlm installed; CONVERT_SOURCE may name a model to use in place
of the bundled one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlx_diffusiongemma.checkpoint.hub import resolve
from mlx_diffusiongemma.convert import convert_checkpoint
from tests.checkpoints import (
    TINY_GENERATION,
    TINY_VISION,
    tiny_config,
    tiny_weights,
    unfuse_experts,
    write_checkpoint,
)
from tests.peer.compare import assert_same, inputs_for, our_logits, run_driver, their_logits
from tests.peer.golden import DEMO

pytestmark = pytest.mark.peer

# bits, group, mode and choice of modules of mlx-vlm's convert
CONVERSIONS = [
    ("4", "64", "affine", "default"),
    ("8", "64", "affine", "default"),
    ("4", "32", "mxfp4", "default"),
    ("4", "64", "affine", "uniform"),
    ("3", "64", "affine", "uniform"),
    ("4", "32", "mxfp4", "uniform"),
    ("8", "32", "mxfp8", "uniform"),
    ("4", "16", "nvfp4", "uniform"),
]
IDS = {"boi_token_id": 1145, "image_token_id": 1146, "eoi_token_id": 1147}


def write_source(folder: Path, kind: str) -> Path:
    """A T0 checkpoint with the bundled model's tokenizer, or the bundled model itself."""
    if kind == "demo":
        return resolve(os.environ.get("CONVERT_SOURCE", "demo"))
    vision: dict[str, Any] | None = None
    if kind != "text-only":
        vision = {**TINY_VISION, "hidden_size": 64, "num_attention_heads": 4}
        vision["num_key_value_heads"] = 4
    # mlx-vlm takes an absent vision_config for the full-size tower, and null for none.
    config = tiny_config(vocab_size=1152, dtype="bfloat16", vision_config=vision, **IDS)
    weights = tiny_weights(config)
    if kind == "one-tensor-an-expert":
        weights = unfuse_experts(weights)
    if kind == "per-layer-config":  # as transformers saves it, and mlx-vlm cannot read it
        text = config["text_config"]
        full = {"head_dim": text.pop("global_head_dim")}
        full["num_key_value_heads"] = text.pop("num_global_key_value_heads")
        text["per_layer_config"] = {"2": full}
    write_checkpoint(folder, config, weights, generation=TINY_GENERATION, dtype=mx.bfloat16)
    for path in DEMO.glob("*token*.json"):
        shutil.copy(path, folder)
    return folder


def inputs_of(folder: Path) -> dict[str, Any]:
    """A prompt longer than the model's window, so that the windows are compared too."""
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    prompt = text["sliding_window"] + 13
    return inputs_for(text["vocab_size"], config["canvas_length"], prompt)


@pytest.mark.parametrize(
    "kind", ["vision", "text-only", "one-tensor-an-expert", "per-layer-config", "demo"]
)
def test_ours_loads_there(tmp_path: Path, kind: str) -> None:
    """What we convert loads in mlx-vlm unchanged and gives the same logits."""
    source = write_source(tmp_path / "source", kind)
    convert_checkpoint(source, tmp_path / "out", max_shard_bytes=200_000)
    inputs = inputs_of(tmp_path / "out")
    ours = our_logits(tmp_path / "out", inputs)
    assert_same(ours, their_logits(tmp_path / "out", inputs, tmp_path))


@pytest.mark.parametrize("arguments", CONVERSIONS, ids="-".join)
@pytest.mark.parametrize("kind", ["vision", "demo"])
def test_theirs_loads_here(tmp_path: Path, kind: str, arguments: tuple[str, ...]) -> None:
    """What mlx-vlm converts loads here and gives the same logits."""
    source = write_source(tmp_path / "source", kind)
    run_driver("convert", source, tmp_path / "out", *arguments)
    inputs = inputs_of(tmp_path / "out")
    ours = our_logits(tmp_path / "out", inputs)
    assert_same(ours, their_logits(tmp_path / "out", inputs, tmp_path))


def test_same_bytes(tmp_path: Path) -> None:
    """Our default recipe and mlx-vlm's default write the same tensors, bit for bit.

    But for the vision projection, which mlx-vlm 0.7 leaves as it is and the published conversions
    have at 4 bits: in the bundled model it is too narrow to be packed.
    """
    source = write_source(tmp_path / "source", "demo")
    convert_checkpoint(source, tmp_path / "ours")
    run_driver("convert", source, tmp_path / "theirs", *CONVERSIONS[0])
    ours = mx.load(str(tmp_path / "ours" / "model.safetensors"))
    theirs = mx.load(str(tmp_path / "theirs" / "model.safetensors"))
    assert isinstance(ours, dict) and isinstance(theirs, dict)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype, name
        assert mx.array_equal(array.view(mx.uint8), theirs[name].view(mx.uint8)).item(), name
    read = [json.loads((tmp_path / n / "config.json").read_text()) for n in ("ours", "theirs")]
    assert read[0] == read[1]


def test_generates_there(tmp_path: Path) -> None:
    """mlx-vlm's own command answers with a model we converted."""
    source = write_source(tmp_path / "source", "demo")
    convert_checkpoint(source, tmp_path / "out")
    run_driver("generate", tmp_path / "out", "Add 3 and 4")
