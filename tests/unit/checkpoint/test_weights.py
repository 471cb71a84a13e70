"""Loading: the same numbers from every form, the asked-for type, and memory held once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.weights import LoadedWeights, load_weights
from mlx_diffusiongemma.config import QuantizationSpec, read_config
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import (
    TINY_VISION,
    mlx_names,
    quantize_weights,
    tiny_config,
    tiny_weights,
    unfuse_experts,
    write_checkpoint,
)


def load(folder: Path, dtype: mx.Dtype | None = None) -> LoadedWeights:
    return load_weights(open_checkpoint(folder), read_config(folder), dtype=dtype)


def same(found: dict[str, mx.array], expected: dict[str, Any]) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert np.array_equal(np.array(found[name]), np.array(value)), name


@pytest.mark.parametrize("form", ["original", "mlx", "unfused", "sharded", "no index", "inner"])
def test_every_form_gives_the_same_arrays(form: str, tmp_path: Path) -> None:
    config = tiny_config()
    weights = tiny_weights(config)
    stored = {"mlx": mlx_names, "unfused": unfuse_experts}.get(form, dict)(weights)
    if form == "inner":
        stored = {name.removeprefix("model."): value for name, value in weights.items()}
    shards = 3 if form in ("sharded", "no index", "unfused") else 1
    write_checkpoint(tmp_path, config, stored, shards=shards, index=form != "no index")
    loaded = load(tmp_path)
    same(loaded.weights, mlx_names(weights))
    assert loaded.quantization == {} and loaded.ignored == loaded.vision == ()


@pytest.mark.parametrize("unfused", [False, True])
@pytest.mark.parametrize(
    ("mode", "bits", "group_size"),
    [("affine", 4, 64), ("affine", 5, 32), ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)],
)
def test_quantised_arrays_are_untouched(
    mode: str, bits: int, group_size: int, unfused: bool, tmp_path: Path
) -> None:
    config = tiny_config()
    packed, block = quantize_weights(
        tiny_weights(config), mode=mode, bits=bits, group_size=group_size
    )
    stored = unfuse_experts(packed) if unfused else packed
    write_checkpoint(tmp_path, {**config, "quantization": block}, stored)
    loaded = load(tmp_path)
    same(loaded.weights, packed)
    assert set(loaded.quantization.values()) == {QuantizationSpec(bits, group_size, mode)}
    assert len(loaded.quantization) == sum(name.endswith(".scales") for name in packed)


def test_layer_scalars_stay_apart_and_may_be_stored_without_an_axis(tmp_path: Path) -> None:
    config = tiny_config()
    weights = tiny_weights(config)
    name = "model.encoder.language_model.layers.1.layer_scalar"
    weights[name] = np.float32(0.25)
    loaded = load(write_checkpoint(tmp_path, config, weights))
    assert loaded.weights[name].shape == (1,) and loaded.weights[name].item() == 0.25
    decoder = loaded.weights["model.decoder.layers.1.layer_scalar"]
    assert decoder.shape == (1,) and decoder.item() != 0.25


@pytest.mark.parametrize("stored", [mx.float32, mx.bfloat16, mx.float16])
@pytest.mark.parametrize("asked", [mx.float32, mx.bfloat16, mx.float16, None])
def test_floats_are_cast_and_packed_arrays_are_not(
    stored: mx.Dtype, asked: mx.Dtype | None, tmp_path: Path
) -> None:
    config = tiny_config(dtype="bfloat16")
    override = {"model.decoder.embed_tokens": {"bits": 8, "group_size": 64}}
    packed, block = quantize_weights(
        tiny_weights(config), mode="mxfp4", group_size=32, overrides=override, dtype=stored
    )
    write_checkpoint(tmp_path, {**config, "quantization": block}, packed)
    weights = load(tmp_path, asked).weights
    target = mx.bfloat16 if asked is None else asked
    for name, array in weights.items():
        if name.endswith(".weight") and name.replace(".weight", ".scales") in weights:
            assert array.dtype == mx.uint32
        elif name.endswith(".scales") and "embed_tokens" not in name:
            assert array.dtype == mx.uint8
        else:
            assert array.dtype == target, name


def test_vision_and_copies_are_not_read(tmp_path: Path) -> None:
    config = tiny_config(vision_config=TINY_VISION)
    weights = tiny_weights(config)
    stored = {**weights, "lm_head.weight": weights["model.decoder.embed_tokens.weight"]}
    write_checkpoint(tmp_path, config, stored)
    checkpoint = open_checkpoint(tmp_path)
    loaded = load_weights(checkpoint, read_config(tmp_path))
    assert loaded.ignored == ("lm_head.weight",)
    assert set(loaded.vision) == {name for name in weights if "vision" in name}
    assert not any("vision" in name or "lm_head" in name for name in loaded.weights)


def test_memory_is_held_once(tmp_path: Path) -> None:
    config = tiny_config(
        vocab_size=16384, hidden_size=256, intermediate_size=1024, moe_intermediate_size=512
    )
    weights = tiny_weights(config)
    total = sum(value.nbytes for value in weights.values())
    largest = max(value.nbytes for value in weights.values())
    write_checkpoint(tmp_path, config, unfuse_experts(weights), shards=2, dtype=mx.bfloat16)
    del weights
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    loaded = load(tmp_path, mx.float32)
    assert mx.get_active_memory() - before < total + 100_000
    assert mx.get_peak_memory() - before < total + 2 * largest
    assert loaded.weights


def test_loaded_arrays_do_not_depend_on_the_files(tmp_path: Path) -> None:
    config = tiny_config()
    weights = tiny_weights(config)
    folder = write_checkpoint(tmp_path / "a", config, weights)
    loaded = load(folder)
    (folder / "model.safetensors").write_bytes(b"")
    same(loaded.weights, mlx_names(weights))


def test_a_file_cut_after_the_check_is_an_error(tmp_path: Path) -> None:
    config = tiny_config()
    folder = write_checkpoint(tmp_path, config, tiny_weights(config))
    checkpoint = open_checkpoint(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelError, match="cannot be read"):
        load_weights(checkpoint, read_config(folder))
