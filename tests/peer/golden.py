"""The random source of the committed mlx-vlm conversions, and the script that makes them.

    MLX_VLM_PYTHON=... python -m tests.peer.golden

Each tensor is seeded by its own name, so the source can be made again anywhere.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_diffusiongemma.checkpoint.modules import ModuleSpec, expected_modules, vision_modules
from mlx_diffusiongemma.config import parse_config
from tests.checkpoints import TINY_GENERATION, TINY_VISION, tiny_config, write_checkpoint
from tests.peer.compare import inputs_for, run_driver, their_logits

DATA = Path(__file__).parents[1] / "data"
DEMO = Path(__file__).parents[2] / "mlx_diffusiongemma" / "demo"
# Folder under tests/data: arguments of the driver's convert.
CONVERSIONS = {
    "mlx_vlm_4bit": ("4", "64", "affine", "default"),
    "mlx_vlm_mxfp4": ("4", "32", "mxfp4", "uniform"),
}
KEPT = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
)
LOGITS = "logits.npz"


def golden_config() -> dict[str, Any]:
    """Two layers, three experts, 128 ids, and the smallest vision tower."""
    return tiny_config(
        dtype="bfloat16",
        vocab_size=128,
        intermediate_size=64,
        num_experts=3,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        canvas_length=12,
        boi_token_id=125,
        image_token_id=126,
        eoi_token_id=127,
        vision_config={
            **TINY_VISION,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
        },
    )


def write_source(folder: Path) -> Path:
    """The bfloat16 source in the original's names."""
    config = golden_config()
    parsed = parse_config(config, TINY_GENERATION)
    modules = {**expected_modules(parsed), **vision_modules(parsed)}
    weights = {_stored_name(spec): _values(spec) for spec in modules.values()}
    return write_checkpoint(folder, config, weights, generation=TINY_GENERATION, dtype=mx.bfloat16)


def _stored_name(spec: ModuleSpec) -> str:
    return spec.path if spec.kind == "experts" else spec.tensor


def _values(spec: ModuleSpec) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(spec.path.encode()))
    if spec.quantizable or spec.kind == "table":
        values = rng.normal(size=spec.shape) / np.sqrt(spec.shape[-1])
    else:
        values = rng.uniform(0.5, 1.5, spec.shape)
    return values.astype(np.float32)


def main() -> None:
    """Convert with mlx-vlm and record its logits."""
    for name, arguments in CONVERSIONS.items():
        with tempfile.TemporaryDirectory() as scratch_name:
            scratch = Path(scratch_name)
            source = write_source(scratch / "source")
            for path in DEMO.glob("*token*.json"):  # mlx-vlm converts nothing without a tokenizer
                shutil.copy(path, source)
            run_driver("convert", source, scratch / "out", *arguments)
            target = DATA / name
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for file in KEPT:
                shutil.copyfile(scratch / "out" / file, target / file)
            inputs = inputs_for(vocab=128, canvas=12)
            outputs = their_logits(target, inputs, scratch)
            np.savez_compressed(target / LOGITS, **inputs, **outputs)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
