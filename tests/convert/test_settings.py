"""The files beside the weights: config in the published form, generation config, template, code."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.plan import plan_weights
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.convert import convert_checkpoint
from mlx_diffusiongemma.convert.settings import without_code
from mlx_diffusiongemma.errors import ModelError
from mlx_diffusiongemma.text.chat import load_template
from tests.checkpoints import TINY_GENERATION, tiny_config, tiny_weights
from tests.convert.folders import VISION_64, read_json, set_json, write_source

CHAT = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Bye"},
]


def convert(tmp_path: Path, **config: Any) -> Path:
    """Convert a T0 source to tmp_path/out."""
    convert_checkpoint(write_source(tmp_path / "in", **config), tmp_path / "out")
    return tmp_path / "out"


def test_generation_config_survives_twice(tmp_path: Path) -> None:
    mine = {**TINY_GENERATION, "max_denoising_steps": 5}
    mine["sampler_config"] = {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.7}
    out = convert(tmp_path, generation=mine, canvas_length=12)
    assert read_json(out / "generation_config.json") == mine
    assert read_json(out / "config.json")["generation_config"] == mine
    config = read_config(out)
    found = config.generation
    assert (found.max_denoising_steps, found.entropy_bound, config.canvas_length) == (5, 0.7, 12)
    assert found == read_config(tmp_path / "in").generation


def test_an_embedded_generation_config_becomes_a_file_too(tmp_path: Path) -> None:
    out = convert(tmp_path, generation=None, generation_config=TINY_GENERATION)
    assert read_json(out / "generation_config.json") == TINY_GENERATION
    assert read_json(out / "config.json")["generation_config"] == TINY_GENERATION


def test_two_generation_configs_stay_what_they_are(tmp_path: Path) -> None:
    """A value that only the embedded one has still counts after the conversion."""
    file = {key: value for key, value in TINY_GENERATION.items() if key != "t_max"}
    embedded = {**TINY_GENERATION, "t_max": 0.9, "t_min": 0.1}
    out = convert(tmp_path, generation=file, generation_config=embedded)
    assert read_config(out).generation == read_config(tmp_path / "in").generation
    assert read_config(out).generation.t_max == 0.9


def test_no_generation_config_is_invented(tmp_path: Path) -> None:
    out = convert(tmp_path, generation=None)
    assert not (out / "generation_config.json").exists()
    assert "generation_config" not in read_json(out / "config.json")


def test_template_in_its_own_file_survives(tmp_path: Path) -> None:
    out = convert(tmp_path)
    before, after = load_template(tmp_path / "in"), load_template(out)
    assert before is not None and after is not None
    assert after.render(CHAT) == before.render(CHAT) != ""


def test_side_files_are_copied_and_nothing_else(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in")
    kept = {
        "tokenizer.model": b"\x00\x01",
        "special_tokens_map.json": b"{}",
        "added_tokens.json": b"{}",
        "chat_template.json": b'{"chat_template": ""}',
        "processor_config.json": b'{ "image_seq_length":  280 }',
        "preprocessor_config.json": b"{}",
        "video_preprocessor_config.json": b"{}",
    }
    left = {
        "modeling_gemma.py": b"raise SystemExit",
        "tokenizer_gemma.py": b"raise SystemExit",
        "README.md": b"# Model",
        "pytorch_model.bin": b"pickle",
        "training_args.json": b"{}",
        ".gitattributes": b"",
    }
    for name, data in {**kept, **left}.items():
        (source / name).write_bytes(data)
    (source / "tokenizer_extra.json").mkdir()
    report = convert_checkpoint(source, tmp_path / "out")
    for name, data in kept.items():
        assert (tmp_path / "out" / name).read_bytes() == data, name
    written = {path.name for path in (tmp_path / "out").iterdir()}
    own = {"config.json", "model.safetensors"}
    plain = {"generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert written == set(report.files) == {*kept, *own, *plain, "chat_template.jinja"}
    for path in (tmp_path / "out").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644, path.name


def test_text_use_needs_no_processor_files(tmp_path: Path) -> None:
    """Only config, weights and tokenizer: nothing else is asked for."""
    source = write_source(tmp_path / "in", generation=None)
    (source / "chat_template.jinja").unlink()
    (source / "tokenizer_config.json").unlink()
    convert_checkpoint(source, tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"config.json", "model.safetensors", "tokenizer.json"}


def test_nothing_that_names_code_gets_through(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in")
    code = {"auto_map": {"AutoModel": "evil.Model"}, "model_file": "evil.py"}
    set_json(source / "config.json", **code, _name_or_path="somewhere", torch_dtype="bfloat16")
    set_json(source / "tokenizer_config.json", **code, trust_remote_code=True)
    (source / "processor_config.json").write_text(json.dumps({"image_processor": {**code, "a": 1}}))
    (source / "evil.py").write_text("raise SystemExit")
    convert_checkpoint(source, tmp_path / "out")
    for path in (tmp_path / "out").glob("*.json"):
        text = path.read_text()
        assert not any(word in text for word in ("auto_map", "model_file", "evil", "trust_remote"))
        assert "_name_or_path" not in text and "torch_dtype" not in text
    assert read_json(tmp_path / "out" / "processor_config.json") == {"image_processor": {"a": 1}}
    assert not list((tmp_path / "out").glob("*.py"))


def test_without_code_keeps_the_rest() -> None:
    content = {"a": [{"auto_map": 1, "b": None}, 2], "c": {"model_file": "x"}, "d": "auto_map"}
    assert without_code(content) == {"a": [{"b": None}, 2], "c": {}, "d": "auto_map"}


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in")
    (tmp_path / "secret").write_text("{}")
    (source / "special_tokens_map.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match=r"special_tokens_map\.json.* link"):
        convert_checkpoint(source, tmp_path / "out")


def test_links_of_a_hub_cache_are_followed(tmp_path: Path) -> None:
    repo = tmp_path / "models--a--b"
    source = write_source(repo / "snapshots" / "0123")
    (repo / "blobs").mkdir()
    for path in list(source.iterdir()):
        blob = repo / "blobs" / f"{len(path.name)}-{path.name[-9:-5]}"
        path.rename(blob)
        path.symlink_to(Path("..") / ".." / "blobs" / blob.name)
    convert_checkpoint(source, tmp_path / "out")
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


def per_layer(overrides: dict[str, dict[str, int]]) -> dict[str, Any]:
    """A source's config in the form that current transformers saves."""
    config = tiny_config()["text_config"]
    del config["global_head_dim"], config["num_global_key_value_heads"]
    return {**config, "per_layer_config": overrides}


def test_per_layer_config_becomes_the_published_form(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in")
    text = per_layer({"2": {"head_dim": 32, "num_key_value_heads": 1}})
    set_json(source / "config.json", text_config=text)
    report = convert_checkpoint(source, tmp_path / "out")
    written = read_json(tmp_path / "out" / "config.json")["text_config"]
    assert "per_layer_config" not in written
    assert (written["head_dim"], written["global_head_dim"]) == (16, 32)
    assert (written["num_key_value_heads"], written["num_global_key_value_heads"]) == (2, 1)
    assert read_config(tmp_path / "out").text == read_config(source).text
    assert report.notices == ()


def test_a_layout_without_a_published_form_is_kept_and_told(tmp_path: Path) -> None:
    """Sliding layers that differ in their heads: mlx-vlm has no words for it, this project has."""
    weights = tiny_weights(tiny_config())
    for part in ("k_proj", "v_proj"):
        name = f"model.decoder.layers.1.self_attn.{part}.weight"
        weights[name] = weights[name][:16]
    source = write_source(tmp_path / "in", weights=weights)
    full = {"head_dim": 32, "num_key_value_heads": 1}
    text = per_layer({"1": {"num_key_value_heads": 1}, "2": full})
    set_json(source / "config.json", text_config=text)
    report = convert_checkpoint(source, tmp_path / "out")
    assert len(report.notices) == 1 and "mlx-vlm" in report.notices[0]
    assert read_config(tmp_path / "out").text == read_config(source).text


def test_defaults_that_readers_disagree_on_are_spelled_out(tmp_path: Path) -> None:
    """Left to its own defaults mlx-vlm would take other sizes than the original's class."""
    text = tiny_config()["text_config"]
    for name in ("rope_parameters", "layer_types", "final_logit_softcapping", "sliding_window"):
        del text[name]
    text["num_global_key_value_heads"] = None
    weights = tiny_weights(tiny_config(num_global_key_value_heads=2))
    source = write_source(tmp_path / "in", weights=weights)
    set_json(source / "config.json", text_config=text, canvas_length=None, dtype=None)
    convert_checkpoint(source, tmp_path / "out")
    written = read_json(tmp_path / "out" / "config.json")
    assert written["canvas_length"] == 256 and written["dtype"] == "bfloat16"
    spelled = written["text_config"]
    assert spelled["layer_types"] == ["sliding_attention", "sliding_attention", "full_attention"]
    assert spelled["sliding_window"] == 512 and spelled["num_global_key_value_heads"] == 2
    assert spelled["final_logit_softcapping"] == 30.0
    assert spelled["rope_parameters"]["full_attention"]["partial_rotary_factor"] == 0.25
    assert read_config(tmp_path / "out").text == read_config(source).text


def test_the_pre_release_name_becomes_the_released_one(tmp_path: Path) -> None:
    out = convert(tmp_path, model_type="diffusion_gemma4")
    assert read_json(out / "config.json")["model_type"] == "diffusion_gemma"


def test_vision_tensors_are_kept_and_named(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in", vision_config=VISION_64)
    report = convert_checkpoint(source, tmp_path / "out")
    stored = open_checkpoint(source).tensors
    assert set(report.vision) == {name for name in stored if "vision" in name} != set()
    assert report.parameters["vision_tower"] > 0 < report.parameters["vision_projection"]
    checkpoint = open_checkpoint(tmp_path / "out")
    written = plan_weights(checkpoint, read_config(tmp_path / "out")).vision
    assert set(report.vision) <= set(written)
    projection = "model.encoder.embed_vision.embedding_projection"
    assert f"{projection}.scales" in checkpoint.tensors
    assert read_json(tmp_path / "out" / "config.json")["vision_config"] == VISION_64
    assert report.notices == ()


def test_a_source_without_vision_tensors_says_so(tmp_path: Path) -> None:
    """mlx-vlm takes an absent vision_config for a full tower, and null for none."""
    weights = tiny_weights(tiny_config())
    source = write_source(tmp_path / "in", weights=weights, vision_config=VISION_64)
    report = convert_checkpoint(source, tmp_path / "out")
    assert report.vision == () and "text only" in report.notices[0]
    assert read_json(tmp_path / "out" / "config.json")["vision_config"] is None
    plain = convert_checkpoint(write_source(tmp_path / "plain"), tmp_path / "out2")
    assert plain.notices == ()
    assert read_json(tmp_path / "out2" / "config.json")["vision_config"] is None


def test_an_incomplete_tower_is_told(tmp_path: Path) -> None:
    weights = tiny_weights(tiny_config(vision_config=VISION_64))
    del weights["model.encoder.vision_tower.std_bias"]
    source = write_source(tmp_path / "in", weights=weights, vision_config=VISION_64)
    report = convert_checkpoint(source, tmp_path / "out")
    assert "std_bias" in report.notices[0]


def test_clip_bounds_of_the_tower_are_kept(tmp_path: Path) -> None:
    weights = tiny_weights(tiny_config(vision_config=VISION_64))
    bound = "model.encoder.vision_tower.encoder.layers.0.mlp.up_proj.input_max"
    weights[bound] = weights["model.encoder.vision_tower.std_bias"][:1].reshape(())
    source = write_source(tmp_path / "in", weights=weights, vision_config=VISION_64)
    report = convert_checkpoint(source, tmp_path / "out")
    assert bound in report.vision and report.dropped == ()
    assert open_checkpoint(tmp_path / "out").tensors[bound].shape == ()
