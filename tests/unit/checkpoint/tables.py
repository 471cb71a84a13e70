"""The released checkpoint as a table of tensors without data, original and 4-bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlx_diffusiongemma.checkpoint.header import DTYPE_BYTES, TensorInfo
from mlx_diffusiongemma.checkpoint.index import Checkpoint

DATA = Path(__file__).parents[2] / "data"


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DATA / name).read_text())
    return content


def real_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the original release."""
    table = load("real_tensor_shapes.json")
    full = set(table["full"])
    sets = {"full": sorted(full), "sliding": sorted(set(range(30)) - full)}
    shapes: dict[str, tuple[int, ...]] = {}
    for row in table["tensors"]:
        layers = row.get("layers")
        if layers is None:
            shapes[row["name"]] = tuple(row["shape"])
            continue
        numbers = sets.get(layers) or range(int(layers.partition("-")[2]) + 1)
        for number in numbers:
            shapes[row["name"].replace("{n}", str(number))] = tuple(row["shape"])
    assert len(shapes) == table["count"]
    return shapes


def tensor(name: str, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    size = DTYPE_BYTES[dtype]
    for length in shape:
        size *= length
    return TensorInfo(name, "model.safetensors", dtype, shape, size)


def checkpoint(tensors: Iterator[TensorInfo] | list[TensorInfo]) -> Checkpoint:
    """A checkpoint that has headers only: enough for all checks, nothing to read."""
    return Checkpoint(Path("table"), {info.name: info for info in tensors})


def real_original() -> Checkpoint:
    return checkpoint([tensor(name, "BF16", shape) for name, shape in real_shapes().items()])


def real_four_bit() -> tuple[Checkpoint, dict[str, Any]]:
    """The published 4-bit conversion and its `quantization` block with 236 overrides."""
    block: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}
    tensors: list[TensorInfo] = []
    for name, shape in real_shapes().items():
        fused = name.endswith((".experts.gate_up_proj", ".experts.down_proj"))
        stored = f"{name}.weight" if fused else name
        path = stored.removesuffix(".weight")
        if "vision_tower" in name or len(shape) < 2:
            tensors.append(tensor(stored, "BF16", shape))
            continue
        eight = "decoder" in path and not fused and "self_conditioning" not in path
        if eight:
            block[path] = {"group_size": 64, "bits": 8}
        bits = 8 if eight else 4
        tensors.append(tensor(stored, "U32", (*shape[:-1], shape[-1] * bits // 32)))
        for part in ("scales", "biases"):
            tensors.append(tensor(f"{path}.{part}", "BF16", (*shape[:-1], shape[-1] // 64)))
    return checkpoint(tensors), block
