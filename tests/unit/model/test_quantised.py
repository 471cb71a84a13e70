"""Quantised networks, through files: every use of a packed matrix equals its dequantised form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.config import QuantizationSpec, parse_config
from mlx_diffusiongemma.diffusion.denoise import denoise_canvas
from mlx_diffusiongemma.diffusion.draws import KeyDraws
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.model.matrix import CPU_DENSE_ROWS, Embedding, ExpertStack, Linear
from mlx_diffusiongemma.model.transformer import DiffusionGemma
from mlx_diffusiongemma.session import Session
from tests.checkpoints import (
    Weights,
    mlx_names,
    quantize_weights,
    tiny_config,
    tiny_weights,
    write_checkpoint,
)
from tests.parity.ours import open_ours

MODES = [
    QuantizationSpec(4, 64),
    QuantizationSpec(8, 32),
    QuantizationSpec(2, 64),
    QuantizationSpec(6, 64),
    QuantizationSpec(4, 32, "mxfp4"),
    QuantizationSpec(8, 32, "mxfp8"),
    QuantizationSpec(4, 16, "nvfp4"),
]
by_mode = pytest.mark.parametrize("spec", MODES, ids=lambda spec: f"{spec.mode}{spec.bits}")


def arguments(spec: QuantizationSpec) -> dict[str, Any]:
    return {"bits": spec.bits, "group_size": spec.group_size, "mode": spec.mode}


def packed(kind: Any, spec: QuantizationSpec, *shape: int) -> tuple[Any, mx.array]:
    """A packed matrix of our classes and its dequantised form in float32."""
    weight = mx.array(np.random.RandomState(0).normal(0, 0.2, shape).astype(np.float32))
    parts = mx.quantize(weight, **arguments(spec))
    biases = parts[2] if spec.mode == "affine" else None
    dense = mx.dequantize(parts[0], parts[1], biases, **arguments(spec)).astype(mx.float32)
    return kind(parts[0], parts[1], biases, spec), dense


def close(ours: mx.array, exact: mx.array, tolerance: float = 1e-4) -> bool:
    assert ours.shape == exact.shape and ours.dtype == mx.float32
    return bool(mx.allclose(ours, exact, rtol=1e-5, atol=tolerance).item())


@by_mode
@pytest.mark.parametrize("rows", [1, CPU_DENSE_ROWS - 1, CPU_DENSE_ROWS, 40])
def test_products(spec: QuantizationSpec, rows: int) -> None:
    """Few rows and many take different ways."""
    x = mx.random.normal((1, rows, 128), key=mx.random.key(1))
    linear, dense = packed(Linear, spec, 192, 128)
    assert close(linear(x), x @ dense.T)
    table, dense = packed(Embedding, spec, 320, 128)
    assert close(table.head(x), x @ dense.T)
    probabilities = mx.softmax(mx.random.normal((rows, 320), key=mx.random.key(2)), axis=-1)
    assert close(table.mix(probabilities), probabilities @ dense)
    ids = mx.arange(rows)[None]
    assert (table(ids) == dense[ids]).all().item()


@by_mode
def test_expert_products(spec: QuantizationSpec) -> None:
    stack, dense = packed(ExpertStack, spec, 4, 96, 64)
    x = mx.random.normal((7, 1, 64), key=mx.random.key(1))
    for chosen in ([0, 0, 1, 1, 3, 3, 3], [2] * 7, [0, 1, 1, 1, 1, 1, 2]):
        ours = stack(x, mx.array(chosen, dtype=mx.uint32))
        assert close(ours, x @ dense[mx.array(chosen)].swapaxes(-1, -2))


def checkpoint(folder: Path, spec: QuantizationSpec, **config: Any) -> tuple[Path, Weights]:
    """A quantised checkpoint, and the same weights dequantised."""
    plain = tiny_config(**config)
    packed_weights, block = quantize_weights(tiny_weights(plain), **arguments(spec))
    write_checkpoint(folder, {**plain, "quantization": block}, packed_weights)
    dense: Weights = {}
    for name, value in packed_weights.items():
        path, _, suffix = name.rpartition(".")
        if f"{path}.scales" not in packed_weights:
            dense[name] = mx.array(value)
        elif suffix == "weight":
            biases = packed_weights.get(f"{path}.biases")
            scales = packed_weights[f"{path}.scales"]
            dense[name] = mx.dequantize(value, scales, biases, **arguments(spec))
    return folder, dense


def dense_model(dense: Weights) -> DiffusionGemma:
    return DiffusionGemma(parse_config(tiny_config(), None), mlx_names(dense), mx.float32)


@by_mode
def test_network_equals_its_dequantised_form(spec: QuantizationSpec, tmp_path: Path) -> None:
    folder, dense = checkpoint(tmp_path, spec)
    ours, exact = open_ours(folder), dense_model(dense)
    assert ours.embed_tokens.quantized and ours.layers[0].experts.gate_up_proj.quantized
    prompt, canvas = list(range(3, 24)), mx.arange(100, 116)
    prefixes = [model.prefill(prompt) for model in (ours, exact)]
    assert close(ours.next_token_logits(prefixes[0]), exact.next_token_logits(prefixes[1]))
    first = [
        model.canvas_logits(prefix, canvas)
        for model, prefix in zip((ours, exact), prefixes, strict=True)
    ]
    assert close(first[0], first[1])
    assert close(ours.soft_embedding(first[1]), exact.soft_embedding(first[1]))
    second = [
        model.canvas_logits(prefix, canvas, first[1])
        for model, prefix in zip((ours, exact), prefixes, strict=True)
    ]
    assert close(second[0], second[1])


@by_mode
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_run_and_equal_the_dequantised_form(
    spec: QuantizationSpec, steps: int, tmp_path: Path
) -> None:
    """Self-conditioning enters with step 2: that is where a packed table breaks."""
    folder, dense = checkpoint(tmp_path, spec)
    settings = DiffusionSettings(max_steps=steps, stability_threshold=steps)
    runs = []
    for model in (open_ours(folder), dense_model(dense)):
        session = Session(model, model.prefill(list(range(3, 24))))
        runs.append(list(denoise_canvas(session, settings, KeyDraws(3), 1)))
    assert [len(run) for run in runs] == [steps, steps]
    for ours, exact in zip(*runs, strict=True):
        assert np.abs(ours.entropies - exact.entropies).max() < 1e-3
        assert (ours.draft == exact.draft).all()


def test_soft_embedding_is_probabilities_times_the_dequantised_table(tmp_path: Path) -> None:
    folder, dense = checkpoint(tmp_path, MODES[0])
    model = open_ours(folder)
    logits = mx.random.normal((16, 256), key=mx.random.key(0)) * 3
    table = dense["model.decoder.embed_tokens.weight"]
    exact = (mx.softmax(logits, axis=-1) @ table * 64**0.5)[None]
    assert close(model.soft_embedding(logits), exact)


def test_bfloat16_scales_do_not_round_a_float32_product(tmp_path: Path) -> None:
    """Scales stored in bfloat16 are widened before they are used."""
    plain = tiny_config()
    packed_weights, block = quantize_weights(tiny_weights(plain), dtype=mx.bfloat16)
    write_checkpoint(tmp_path, {**plain, "quantization": block}, packed_weights)
    name = "model.decoder.layers.0.mlp.gate_proj"
    scales, biases = (
        packed_weights[f"{name}.{part}"].astype(mx.float32) for part in ("scales", "biases")
    )
    dense = mx.dequantize(packed_weights[f"{name}.weight"], scales, biases, group_size=64, bits=4)
    linear = open_ours(tmp_path).layers[0].mlp.gate_proj
    for rows in (1, 40):
        x = mx.random.normal((1, rows, 64), key=mx.random.key(5))
        assert close(linear(x), x @ dense.T)
