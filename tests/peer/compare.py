"""The same canvas in both implementations: inputs, our logits, and a call of the other's Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.weights import load_weights
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.model.transformer import DiffusionGemma

VARIABLE = "MLX_VLM_PYTHON"
DRIVER = Path(__file__).with_name("driver.py")
Arrays = dict[str, np.ndarray]


def inputs_for(vocab: int, canvas: int, prompt: int = 21, seed: int = 5) -> Arrays:
    """A random prompt (longer than the tiny models' window), a canvas and logits before it.

    Ids stay below the image ids that tiny vocabularies have at their end.
    """
    rng = np.random.default_rng(seed)
    return {
        "prompt": rng.integers(0, vocab - 8, prompt).astype(np.int32),
        "canvas": rng.integers(0, vocab - 8, canvas).astype(np.int32),
        "previous": rng.normal(0, 4, (canvas, vocab)).astype(np.float32),
    }


def our_logits(folder: Path, inputs: Arrays) -> Arrays:
    """`first` and `second` as the driver computes them, by this project, in float32."""
    config = read_config(folder)
    loaded = load_weights(open_checkpoint(folder), config, dtype=mx.float32)
    model = DiffusionGemma(config, loaded.weights, mx.float32, loaded.quantization)
    prefix = model.prefill([int(token) for token in inputs["prompt"]])
    canvas = mx.array(inputs["canvas"])
    first = model.canvas_logits(prefix, canvas)
    second = model.canvas_logits(prefix, canvas, mx.array(inputs["previous"]))
    return {"first": np.array(first), "second": np.array(second)}


def run_driver(*arguments: object) -> None:
    """Run driver.py with the Python that has mlx-vlm."""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.fail(f"set {VARIABLE} to a Python that can import mlx_vlm")
    done = subprocess.run(
        [python, str(DRIVER), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


def their_logits(folder: Path, inputs: Arrays, scratch: Path) -> Arrays:
    """`first` and `second` by mlx-vlm, in float32."""
    np.savez(scratch / "inputs.npz", **inputs)  # type: ignore[arg-type]
    run_driver("logits", folder, scratch / "inputs.npz", scratch / "outputs.npz")
    with np.load(scratch / "outputs.npz") as outputs:
        return dict(outputs)


def assert_same(ours: Arrays, theirs: Arrays, tolerance: float = 1e-3) -> float:
    """Logits within `tolerance`, and the same best token everywhere; returns the distance."""
    worst = 0.0
    for name in ("first", "second"):
        distance = float(np.abs(ours[name] - theirs[name]).max())
        assert distance <= tolerance, f"{name}: {distance}"
        assert (ours[name].argmax(-1) == theirs[name].argmax(-1)).all(), name
        worst = max(worst, distance)
    return worst
