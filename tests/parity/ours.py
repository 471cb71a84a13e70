"""Our side of the comparisons: models built from cases or files, and their facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.weights import load_weights
from mlx_diffusiongemma.config import parse_config, read_config
from mlx_diffusiongemma.model.cache import Prefix
from mlx_diffusiongemma.model.transformer import DiffusionGemma
from tests.parity.cases import Case, config_json, make_weights
from tests.parity.facts import CanvasFacts, Facts, trial


def build_ours(case: Case, dtype: mx.Dtype = mx.float32) -> DiffusionGemma:
    """The case's model straight from its weights, with no files in between."""
    weights = {name: mx.array(array) for name, array in make_weights(case).items()}
    return DiffusionGemma(parse_config(config_json(case), None), weights, dtype)


def open_ours(folder: Path) -> DiffusionGemma:
    """The model of a checkpoint folder in float32, the way the runtime opens it."""
    config = read_config(folder)
    loaded = load_weights(open_checkpoint(folder), config, dtype=mx.float32)
    return DiffusionGemma(config, loaded.weights, mx.float32, loaded.quantization)


def our_facts(model: DiffusionGemma, case: Case, chunk: int | None = None) -> Facts:
    """What our model computes for the case's trial, the prompt encoded `chunk` ids at a time."""
    plan = trial(case)
    logits, prefix = encode_in_chunks(model, plan.prompt, chunk or case.prompt)
    keys, values = prefix_arrays(prefix)
    canvases = []
    for number, ids in enumerate(plan.canvases):
        if number:
            _, prefix = model.encode(mx.array(plan.canvases[number - 1]), prefix)
        first = model.canvas_logits(prefix, mx.array(ids))
        second = model.canvas_logits(
            prefix, mx.array(plan.second[number]), first / plan.temperature
        )
        canvases.append(CanvasFacts(np.array(first), np.array(second)))
    return Facts(logits, keys, values, canvases)


def encode_in_chunks(
    model: DiffusionGemma, ids: list[int], chunk: int, prefix: Prefix | None = None
) -> tuple[npt.NDArray[Any], Prefix]:
    """Autoregressive logits (n, V) of every position, and the prefix."""
    prefix = prefix or model.empty_prefix()
    parts = []
    for start in range(0, len(ids), chunk):
        hidden, prefix = model.encode(mx.array(ids[start : start + chunk]), prefix)
        parts.append(np.array(model.logits(hidden)[0]))
    return np.concatenate(parts), prefix


def prefix_arrays(prefix: Prefix) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
    """Keys and values a layer as the reference keeps them: (H_kv, n, d) each."""
    kept = [
        layer if window is None else layer.last(window - 1)
        for layer, window in zip(prefix.layers, prefix.windows, strict=True)
    ]
    keys = [np.array(layer.keys[0].astype(mx.float32)) for layer in kept]
    return keys, [np.array(layer.values[0].astype(mx.float32)) for layer in kept]
