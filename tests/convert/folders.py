"""What the convert tests share: a tiny source folder with its side files, and reading results."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlx_diffusiongemma.checkpoint.index import Checkpoint, open_checkpoint
from tests.checkpoints import (
    TINY_GENERATION,
    TINY_VISION,
    Weights,
    tiny_config,
    tiny_weights,
    write_checkpoint,
)

TOKENIZER_CONFIG = {"eos_token": "<eos>", "processor_class": "Gemma4Processor"}
VISION_64 = {
    **TINY_VISION,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}


def write_source(
    folder: Path,
    *,
    weights: Weights | None = None,
    dtype: mx.Dtype = mx.bfloat16,
    shards: int = 1,
    generation: dict[str, Any] | None = TINY_GENERATION,
    **config: Any,
) -> Path:
    """A T0 checkpoint with a tokenizer's files (not a working tokenizer) and a template."""
    config = tiny_config(**{"dtype": str(dtype).removeprefix("mlx.core."), **config})
    weights = tiny_weights(config) if weights is None else weights
    write_checkpoint(folder, config, weights, shards=shards, generation=generation, dtype=dtype)
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}\n")
    return folder


def read_json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text())
    assert isinstance(content, dict)
    return content


def tensors(folder: Path) -> dict[str, mx.array]:
    """Every tensor of a folder, evaluated."""
    checkpoint: Checkpoint = open_checkpoint(folder)
    arrays = {name: checkpoint.read(name) for name in checkpoint.tensors}
    mx.eval(arrays)
    return arrays


def same_bytes(one: mx.array, other: mx.array) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(mx.array_equal(one.reshape(-1).view(mx.uint8), other.reshape(-1).view(mx.uint8)))


def fingerprint(folder: Path) -> dict[str, str]:
    """The hash of every file of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def set_json(path: Path, **fields: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    content = read_json(path)
    content.update(fields)
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
