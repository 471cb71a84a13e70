"""A synthetic source of a few hundred MB, and a conversion of it in a process of its own.

    python -m tests.convert.big_source SOURCE OUTPUT [--limit BYTES]

prints a line a module, then the process's peak memory before and after the conversion in bytes.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tests.checkpoints import mlx_names, tiny_config, tiny_weights, write_checkpoint

ROOT = Path(__file__).parents[2]
PAGE = 4_000_000  # random values that are repeated to fill the experts


def write_big_source(folder: Path, *, experts: int, layers: int, shards: int) -> int:
    """bfloat16, 25 MB of experts for each 32 experts of a layer; returns the largest shard."""
    width, inner = 256, 512
    sizes: dict[str, Any] = {
        "hidden_size": width,
        "moe_intermediate_size": inner,
        "num_hidden_layers": layers,
        "layer_types": ["sliding_attention"] * layers,
    }
    weights = mlx_names(tiny_weights(tiny_config(num_experts=1, **sizes)))
    page = mx.random.normal((PAGE,)).astype(mx.bfloat16)
    for index in range(layers):
        path = f"model.decoder.layers.{index}"
        for name, rows, columns in (
            ("gate_up_proj", 2 * inner, width),
            ("down_proj", width, inner),
        ):
            count = experts * rows * columns
            values = mx.tile(page, -(-count // PAGE))[:count]
            weights[f"{path}.experts.{name}.weight"] = values.reshape(experts, rows, columns)
        weights[f"{path}.router.proj.weight"] = np.ones((experts, width), np.float32)
        weights[f"{path}.router.per_expert_scale"] = np.ones(experts, np.float32)
    config = tiny_config(num_experts=experts, dtype="bfloat16", **sizes)
    write_checkpoint(folder, config, weights, shards=shards, dtype=mx.bfloat16)
    return max(path.stat().st_size for path in folder.glob("*.safetensors"))


def start(source: Path, output: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a conversion in a process that can be interrupted, whatever this one ignores."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.convert.big_source", str(source), str(output), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def peak_bytes() -> int:
    """The most memory this process has held so far."""
    if platform.system() == "Linux":  # where ru_maxrss starts with the parent's peak
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(source: str, output: str, *arguments: str) -> None:
    """Convert, telling every step; SIGINT is Ctrl-C even where the parent ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from mlx_diffusiongemma.convert import convert_checkpoint
    from mlx_diffusiongemma.errors import DiffusionGemmaError

    if arguments:
        limit = int(arguments[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    before = peak_bytes()

    def tell(done: int, total: int, name: str) -> None:
        print(done, total, name, flush=True)

    try:
        convert_checkpoint(source, Path(output), progress=tell)
    except DiffusionGemmaError as error:
        print(error.message, file=sys.stderr)
        os._exit(error.exit_code)
    print(json.dumps([before, peak_bytes()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
