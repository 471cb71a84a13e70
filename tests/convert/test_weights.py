"""The written weights: names, bits, values, files and index, from every form of source."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from safetensors import safe_open

from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.plan import plan_weights
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.convert import convert_checkpoint
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import (
    mlx_names,
    quantize_weights,
    tiny_config,
    tiny_weights,
    unfuse_experts,
    write_checkpoint,
)
from tests.convert.folders import VISION_64, read_json, same_bytes, tensors, write_source
from tests.peer.compare import inputs_for, our_logits

EIGHT = ("embed_tokens", ".self_attn.", ".mlp.", ".router.proj")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bfloat16 in three shards, with a vision tower of 64-wide layers."""
    folder = tmp_path_factory.mktemp("source") / "model"
    return write_source(folder, shards=3, vision_config=VISION_64)


@pytest.fixture(scope="module")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted") / "model"
    convert_checkpoint(source, folder, max_shard_bytes=100_000)
    return folder


def test_bits_of_every_module_from_the_written_config(converted: Path) -> None:
    config = read_config(converted)
    plan = plan_weights(open_checkpoint(converted), config)
    assert config.quantization is not None
    for path, module in plan.modules.items():
        if not module.spec.quantizable:
            assert module.quantization is None
            continue
        wanted = 8 if any(part in path for part in EIGHT) else 4
        assert module.quantization is not None, path
        assert (module.quantization.bits, module.quantization.group_size) == (wanted, 64), path
        assert module.quantization.mode == "affine"
    written = read_json(converted / "config.json")
    assert written["quantization"] == written["quantization_config"]


def test_index_says_exactly_what_is_on_the_disk(converted: Path) -> None:
    index = read_json(converted / "model.safetensors.index.json")
    files = sorted(path.name for path in converted.glob("*.safetensors"))
    count = len(files)
    assert count > 3
    assert files == [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    found, total = {}, 0
    for file in files:
        with safe_open(converted / file, framework="np") as shard:
            assert shard.metadata() == {"format": "mlx"}
            found.update(dict.fromkeys(shard.keys(), file))
    for array in tensors(converted).values():
        total += array.nbytes
    assert index == {"metadata": {"total_size": total}, "weight_map": found}
    assert list(index["weight_map"]) == sorted(found)


def test_a_single_file_has_no_index(source: Path, tmp_path: Path) -> None:
    report = convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob("model*")] == ["model.safetensors"]
    assert set(report.files) == {path.name for path in (tmp_path / "out").iterdir()}


def test_values_are_within_one_step_of_the_source(source: Path, converted: Path) -> None:
    before, after = mlx_names(tensors(source)), tensors(converted)
    config = read_config(converted)
    assert config.quantization is not None
    packed = [name.removesuffix(".scales") for name in after if name.endswith(".scales")]
    assert len(packed) > 30
    for path in packed:
        spec = config.quantization.for_module(path)
        scales, biases = (after[f"{path}.{part}"] for part in ("scales", "biases"))
        assert scales.dtype == biases.dtype == mx.bfloat16
        assert after[f"{path}.weight"].dtype == mx.uint32
        scale, bias = scales.astype(mx.float32), biases.astype(mx.float32)
        values = mx.dequantize(
            after[f"{path}.weight"], scale, bias, group_size=64, bits=spec.bits, mode="affine"
        )
        error = mx.abs(values - before[f"{path}.weight"].astype(mx.float32))
        groups = error.reshape(*scales.shape, 64).max(axis=-1)
        # MLX stretches the scale so that zero is met exactly: the far end may miss by one step.
        # Rounding the scale and bias to bfloat16 adds to that.
        rounding = 2.0**-8 * (mx.abs(scale) * (2**spec.bits - 1) + mx.abs(bias))
        assert mx.all(groups <= mx.abs(scale) + rounding).item(), path
        steps = error.reshape(*scales.shape, 64) / mx.abs(scale)[..., None]
        # Evenly spread errors have a root mean square of 0.29 steps.
        assert float(mx.sqrt((steps**2).mean())) < (0.33 if spec.bits == 4 else 0.5), path


def test_everything_else_is_untouched(source: Path, converted: Path) -> None:
    before, after = mlx_names(tensors(source)), tensors(converted)
    packed = {name.removesuffix(".scales") for name in after if name.endswith(".scales")}
    parts = {f"{path}.{part}" for path in packed for part in ("weight", "scales", "biases")}
    assert before.keys() - parts == after.keys() - parts
    for name in after.keys() - parts:
        assert same_bytes(before[name], after[name]), name
    assert any(".vision_tower." in name for name in after.keys() - parts)
    assert not any(".vision_tower." in path for path in packed)


def test_mlx_and_safetensors_read_it_alike(converted: Path) -> None:
    """Our own header is one both libraries agree on, and every tensor is aligned to its width."""
    arrays = tensors(converted)
    for path in converted.glob("*.safetensors"):
        with safe_open(path, framework="np") as shard:
            for name in shard.keys():  # noqa: SIM118 - not a mapping
                if arrays[name].dtype == mx.uint32:
                    assert (shard.get_tensor(name) == np.array(arrays[name])).all()
        raw = path.read_bytes()
        assert int.from_bytes(raw[:8], "little") % 8 == 0


@pytest.mark.parametrize("dtype", [mx.float16, mx.float32], ids=["fp16", "fp32"])
def test_other_float_types_keep_theirs(tmp_path: Path, dtype: mx.Dtype) -> None:
    convert_checkpoint(write_source(tmp_path / "in", dtype=dtype), tmp_path / "out")
    kinds = {array.dtype for array in tensors(tmp_path / "out").values()}
    assert kinds == {mx.uint32, dtype}
    assert read_config(tmp_path / "out").dtype == str(dtype).removeprefix("mlx.core.")


@pytest.mark.parametrize("form", ["mlx names", "one tensor an expert", "no prefix", "tied copies"])
def test_every_form_of_source_gives_the_same_tensors(tmp_path: Path, form: str) -> None:
    weights = tiny_weights(tiny_config())
    forms = {
        "mlx names": mlx_names(weights),
        "one tensor an expert": unfuse_experts(weights),
        "no prefix": {name.removeprefix("model."): value for name, value in weights.items()},
        "tied copies": {
            **weights,
            "lm_head.weight": weights["model.decoder.embed_tokens.weight"],
            "model.encoder.language_model.norm.weight": weights["model.decoder.norm.weight"],
        },
    }
    convert_checkpoint(write_source(tmp_path / "a", weights=weights), tmp_path / "plain")
    other = write_source(tmp_path / "b", weights=forms[form])
    report = convert_checkpoint(other, tmp_path / "other")
    plain, found = tensors(tmp_path / "plain"), tensors(tmp_path / "other")
    assert plain.keys() == found.keys()
    assert all(same_bytes(plain[name], found[name]) for name in plain)
    assert set(report.dropped) == forms[form].keys() - weights.keys() & {
        "lm_head.weight",
        "model.encoder.language_model.norm.weight",
    }


def test_scalars_of_no_dimension_become_one_element(tmp_path: Path) -> None:
    weights = tiny_weights(tiny_config())
    scalars = [name for name in weights if name.endswith(".layer_scalar")]
    flat = {n: v.reshape(()) if n in scalars else v for n, v in weights.items()}
    convert_checkpoint(write_source(tmp_path / "in", weights=flat), tmp_path / "out")
    assert all(tensors(tmp_path / "out")[name].shape == (1,) for name in scalars)


def test_narrow_matrices_stay_and_are_listed(tmp_path: Path) -> None:
    """Experts of width 96: their down projections cannot be packed, and the model still runs."""
    source = write_source(tmp_path / "in", moe_intermediate_size=96)
    report = convert_checkpoint(source, tmp_path / "out")
    narrow = [f"model.decoder.layers.{i}.experts.down_proj" for i in range(3)]
    assert list(report.unquantized) == narrow
    after = tensors(tmp_path / "out")
    for path in narrow:
        assert after[f"{path}.weight"].dtype == mx.bfloat16
        assert path not in read_json(tmp_path / "out" / "config.json")["quantization"]
    assert np.isfinite(our_logits(tmp_path / "out", inputs_for(256, 16))["second"]).all()


def test_logits_stay_close(tmp_path: Path) -> None:
    """The bundled, trained model: nearly all best tokens stay, also with self-conditioning."""
    demo = Path(__file__).parents[2] / "mlx_diffusiongemma" / "demo"
    convert_checkpoint("demo", tmp_path / "out")
    config = read_config(demo)
    inputs = inputs_for(config.text.vocab_size, config.canvas_length, prompt=90)
    before, after = our_logits(demo, inputs), our_logits(tmp_path / "out", inputs)
    for name in ("first", "second"):
        agreement = (before[name].argmax(-1) == after[name].argmax(-1)).mean()
        assert agreement >= 0.9, name
        spread = before[name].std()
        assert np.abs(before[name] - after[name]).mean() < 0.15 * spread, name


@pytest.mark.parametrize("named", [True, False], ids=["named in config", "scales only"])
def test_a_quantised_source_is_refused(tmp_path: Path, named: bool) -> None:
    weights, block = quantize_weights(tiny_weights(tiny_config()))
    config = tiny_config(**({"quantization": block} if named else {}))
    write_checkpoint(tmp_path / "in", config, weights)
    with pytest.raises(ModelError, match="quantised"):
        convert_checkpoint(tmp_path / "in", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_integers_in_the_vision_tower_are_refused(tmp_path: Path) -> None:
    weights = tiny_weights(tiny_config(vision_config=VISION_64))
    name = "model.encoder.vision_tower.std_bias"
    weights[name] = weights[name].astype(np.int32)
    source = write_source(tmp_path / "in", weights=weights, vision_config=VISION_64)
    with pytest.raises(ModelError, match=r"std_bias.* dtype I32"):
        convert_checkpoint(source, tmp_path / "out")


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32])
def test_a_weight_that_is_no_number_is_refused_before_it_is_packed(
    tmp_path: Path, dtype: mx.Dtype, bad: float
) -> None:
    weights = tiny_weights(tiny_config())
    name = "model.decoder.layers.1.experts.down_proj"
    name = next(stored for stored in weights if stored.startswith(name))
    weights[name] = weights[name].copy()
    weights[name].flat[-1] = bad
    source = write_source(tmp_path / "in", weights=weights, dtype=dtype)
    with pytest.raises(ModelError, match=r"layers\.1\.experts\.down_proj.* not numbers"):
        convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
