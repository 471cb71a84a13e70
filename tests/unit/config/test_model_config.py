"""config.json: what is read, which defaults hold, and that every wrong value names its field."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma.config import ModelConfig, RopeConfig, parse_config, read_config
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import TINY_GENERATION, TINY_VISION, tiny_config

DATA = Path(__file__).parents[2] / "data"


def real(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DATA / name).read_text())
    return content


def message(config: Any, generation: Any = None) -> str:
    with pytest.raises(ModelError) as caught:
        parse_config(config, generation)
    text = caught.value.message
    assert text.endswith(".") and "\n" not in text and len(text) < 300
    return text


def test_the_real_config() -> None:
    config = parse_config(real("real_config.json"), real("real_generation_config.json"))
    text = config.text
    assert (config.canvas_length, text.vocab_size, text.hidden_size) == (256, 262144, 2816)
    assert (text.num_experts, text.top_k_experts, text.moe_intermediate_size) == (128, 8, 704)
    full = [index for index, layer in enumerate(text.layers) if layer.is_full]
    assert full == [5, 11, 17, 23, 29] and len(text.layers) == 30
    assert (text.layers[5].head_dim, text.layers[5].num_key_value_heads) == (512, 2)
    assert (text.layers[0].head_dim, text.layers[0].num_key_value_heads) == (256, 8)
    assert text.rope["sliding_attention"] == RopeConfig(10_000.0)
    assert text.rope["full_attention"] == RopeConfig(1_000_000.0, 0.25, proportional=True)
    assert (text.sliding_window, text.final_logit_softcapping) == (1024, 30.0)
    assert config.stop_token_ids == (1, 50, 106)
    assert (config.dtype, config.quantization) == ("bfloat16", None)
    assert (config.boi_token_id, config.image_token_id, config.eoi_token_id) == (
        255999,
        258880,
        258882,
    )
    assert config.vision is not None and config.vision["hidden_size"] == 1152
    assert config.generation.source == "file" and config.generation.notices == ()


def test_class_defaults_stand_in_for_absent_fields() -> None:
    required = {
        "vocab_size": 512,
        "hidden_size": 64,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
    }
    config = parse_config({"model_type": "diffusion_gemma", "text_config": required}, None)
    text = config.text
    assert (config.canvas_length, config.dtype, config.vision) == (256, "bfloat16", None)
    assert (text.intermediate_size, len(text.layers), text.sliding_window) == (9216, 30, 512)
    assert [layer.is_full for layer in text.layers] == ([False] * 5 + [True]) * 5
    assert (text.layers[0].head_dim, text.layers[5].head_dim) == (256, 512)
    assert text.layers[5].num_key_value_heads == text.layers[0].num_key_value_heads == 4
    assert text.layers[0].num_attention_heads == 8
    assert (text.rms_norm_eps, text.final_logit_softcapping) == (1e-6, 30.0)
    assert (text.pad_token_id, text.eos_token_ids, text.bos_token_id) == (0, (1,), 2)
    assert text.max_position_embeddings == 131072
    assert config.stop_token_ids == (1,)


@pytest.mark.parametrize(
    "name", ["vocab_size", "hidden_size", "num_experts", "top_k_experts", "moe_intermediate_size"]
)
def test_required_fields_are_named_when_missing(name: str) -> None:
    config = tiny_config()
    del config["text_config"][name]
    assert message(config) == f"text_config.{name} is missing from config.json."


def test_per_layer_config_replaces_the_flat_form() -> None:
    config = tiny_config()
    for name in ("global_head_dim", "num_global_key_value_heads"):
        del config["text_config"][name]
    config["text_config"]["per_layer_config"] = {"2": {"head_dim": 32, "num_key_value_heads": 1}}
    assert parse_config(config, None).text == parse_config(tiny_config(), None).text


@pytest.mark.parametrize("present", [{}, None])
def test_an_empty_per_layer_config_means_no_global_head_size(present: Any) -> None:
    layers = parse_config(tiny_config(per_layer_config=present), None).text.layers
    assert {layer.head_dim for layer in layers} == {16}
    assert {layer.num_key_value_heads for layer in layers} == {2}


def test_per_layer_config_may_repeat_a_base_value() -> None:
    config = tiny_config(per_layer_config={"2": {"head_dim": 32, "sliding_window": 8}})
    assert parse_config(config, None).text.layers[2].head_dim == 32


def test_null_global_heads_fall_back_to_the_sliding_ones() -> None:
    text = parse_config(tiny_config(num_global_key_value_heads=None), None).text
    assert text.layers[2].num_key_value_heads == 2


def test_the_last_layer_is_always_full() -> None:
    config = parse_config(tiny_config(layer_types=["sliding_attention"] * 3), None)
    assert [layer.is_full for layer in config.text.layers] == [False, False, True]
    assert config.text.layers[2].head_dim == 32


def test_a_single_layer_model() -> None:
    config = tiny_config(num_hidden_layers=1, layer_types=None)
    assert [layer.is_full for layer in parse_config(config, None).text.layers] == [True]


def test_softcapping_may_be_switched_off() -> None:
    text = parse_config(tiny_config(final_logit_softcapping=None), None).text
    assert text.final_logit_softcapping is None


def test_rope_kinds_that_no_layer_uses_may_be_absent() -> None:
    rope = {"full_attention": {"rope_type": "proportional", "rope_theta": 5e5}}
    config = tiny_config(layer_types=["full_attention"] * 3, rope_parameters=rope)
    found = parse_config(config, None).text.rope
    assert dict(found) == {"full_attention": RopeConfig(5e5, 1.0, proportional=True)}


def test_rope_defaults_hold_when_the_field_is_null() -> None:
    rope = parse_config(tiny_config(rope_parameters=None), None).text.rope
    assert rope["full_attention"] == RopeConfig(1_000_000.0, 0.25, proportional=True)


def test_stop_tokens_are_the_union_of_all_files() -> None:
    config = tiny_config(eos_token_id=7, generation_config={"eos_token_id": [9]})
    config["text_config"]["eos_token_id"] = [7, 3]
    config["eos_token_id"] = 11
    assert parse_config(config, {"eos_token_id": [106, 3]}).stop_token_ids == (3, 7, 9, 11, 106)


def test_stop_tokens_may_be_declared_empty() -> None:
    config = tiny_config()
    config["eos_token_id"] = []
    config["text_config"]["eos_token_id"] = None
    assert parse_config(config, None).stop_token_ids == ()
    del config["text_config"]["eos_token_id"]
    assert parse_config(config, {"eos_token_id": [5]}).stop_token_ids == (5,)


@pytest.mark.parametrize("model_type", ["diffusion_gemma", "diffusion_gemma4"])
def test_both_model_types_and_any_architecture(model_type: str) -> None:
    config = tiny_config(model_type=model_type, architectures=["Anything"])
    assert isinstance(parse_config(config, None), ModelConfig)


def test_another_model_type_is_named_beside_the_supported_one() -> None:
    text = message(tiny_config(model_type="gemma4"))
    assert text == "The model's type is 'gemma4', but only diffusion_gemma is supported."


@pytest.mark.parametrize(
    ("found", "dtype"),
    [
        ({"dtype": "float16"}, "float16"),
        ({"dtype": None, "torch_dtype": "torch.float32"}, "float32"),
        ({"dtype": None}, "bfloat16"),
    ],
)
def test_dtype_spellings(found: dict[str, Any], dtype: str) -> None:
    assert parse_config({**tiny_config(), **found}, None).dtype == dtype


def test_dtype_of_the_text_config() -> None:
    config = tiny_config(dtype=None)
    config["text_config"]["dtype"] = "float16"
    assert parse_config(config, None).dtype == "float16"


def test_vision_and_raw_are_kept() -> None:
    source = tiny_config(vision_config=TINY_VISION, extra_field=1)
    config = parse_config(source, None)
    assert config.vision is not None and dict(config.vision) == TINY_VISION
    assert config.raw["text_config"]["extra_field"] == 1


def test_parsing_changes_nothing_in_its_input() -> None:
    source, generation = tiny_config(), copy.deepcopy(TINY_GENERATION)
    before = copy.deepcopy(source)
    parse_config(source, generation)
    assert source == before and generation == TINY_GENERATION


TEXT_FAULTS: list[tuple[str, Any, str]] = [
    ("vocab_size", "256", "text_config.vocab_size"),
    ("vocab_size", True, "text_config.vocab_size"),
    ("vocab_size", 256.0, "text_config.vocab_size"),
    ("vocab_size", -1, "text_config.vocab_size"),
    ("vocab_size", 10**400, "text_config.vocab_size"),
    ("hidden_size", 0, "text_config.hidden_size"),
    ("hidden_size", [64], "text_config.hidden_size"),
    ("intermediate_size", -128, "text_config.intermediate_size"),
    ("moe_intermediate_size", {}, "text_config.moe_intermediate_size"),
    ("num_hidden_layers", 10**9, "text_config.num_hidden_layers"),
    ("num_hidden_layers", 0, "text_config.num_hidden_layers"),
    ("num_hidden_layers", 4, "text_config.layer_types"),
    ("layer_types", ["full_attention"] * 2, "text_config.layer_types"),
    ("layer_types", "full_attention", "text_config.layer_types"),
    ("layer_types", ["full_attention", "chunked", "full_attention"], "text_config.layer_types"),
    ("layer_types", ["full_attention", ["x"], "full_attention"], "text_config.layer_types"),
    ("top_k_experts", 5, "text_config.top_k_experts"),
    ("top_k_experts", 0, "text_config.top_k_experts"),
    ("num_experts", True, "text_config.num_experts"),
    ("head_dim", 15, "text_config.head_dim"),
    ("head_dim", "16", "text_config.head_dim"),
    ("global_head_dim", 31, "text_config.global_head_dim"),
    ("num_attention_heads", 5, "text_config.num_key_value_heads"),
    ("num_key_value_heads", 3, "text_config.num_key_value_heads"),
    ("num_key_value_heads", 0, "text_config.num_key_value_heads"),
    ("num_global_key_value_heads", 3, "text_config.num_global_key_value_heads"),
    ("hidden_activation", "silu", "text_config.hidden_activation"),
    ("hidden_activation", 3, "text_config.hidden_activation"),
    ("sliding_window", 0, "text_config.sliding_window"),
    ("rms_norm_eps", 0, "text_config.rms_norm_eps"),
    ("rms_norm_eps", -1e-6, "text_config.rms_norm_eps"),
    ("rms_norm_eps", math.nan, "text_config.rms_norm_eps"),
    ("rms_norm_eps", "1e-6", "text_config.rms_norm_eps"),
    ("final_logit_softcapping", 0, "text_config.final_logit_softcapping"),
    ("final_logit_softcapping", math.inf, "text_config.final_logit_softcapping"),
    ("max_position_embeddings", -5, "text_config.max_position_embeddings"),
    ("attention_bias", True, "text_config.attention_bias"),
    ("attention_bias", "no", "text_config.attention_bias"),
    ("tie_word_embeddings", False, "text_config.tie_word_embeddings"),
    ("use_bidirectional_attention", "all", "text_config.use_bidirectional_attention"),
    ("pad_token_id", -1, "text_config.pad_token_id"),
    ("pad_token_id", True, "text_config.pad_token_id"),
    ("bos_token_id", 1.5, "text_config.bos_token_id"),
    ("eos_token_id", "1", "text_config.eos_token_id"),
    ("rope_parameters", [], "text_config.rope_parameters"),
    ("rope_parameters", {"rope_theta": 1e4}, "text_config.rope_parameters.sliding_attention"),
    ("per_layer_config", {"3": {}}, "text_config.per_layer_config"),
    ("per_layer_config", {"-1": {}}, "text_config.per_layer_config"),
    ("per_layer_config", {"x": {}}, "text_config.per_layer_config"),
    ("per_layer_config", {"0": 5}, "text_config.per_layer_config.0"),
    ("per_layer_config", {"0": None}, "text_config.per_layer_config.0"),
    ("per_layer_config", {"1": {}, "01": {}}, "text_config.per_layer_config.01"),
    ("per_layer_config", {"2": {"head_dim": 31}}, "text_config.per_layer_config.2.head_dim"),
    ("per_layer_config", {"0": {"head_dim": 32}}, "text_config.per_layer_config"),
    (
        "per_layer_config",
        {"0": {"num_key_value_heads": 3}},
        "text_config.per_layer_config.0.num_key_value_heads",
    ),
    ("per_layer_config", {"0": {"skip": ["mlp"]}}, "text_config.per_layer_config.0.skip"),
    (
        "per_layer_config",
        {"0": {"intermediate_size": 64}},
        "text_config.per_layer_config.0.intermediate_size",
    ),
]


@pytest.mark.parametrize(("name", "value", "named"), TEXT_FAULTS)
def test_a_wrong_text_field_is_named(name: str, value: Any, named: str) -> None:
    config = tiny_config(**{name: value})
    config["text_config"][name] = value
    assert message(config).startswith(f"{named} in config.json ") or (
        message(config) == f"{named} is missing from config.json."
    )


TOP_FAULTS: list[tuple[str, Any]] = [
    ("model_type", None),
    ("model_type", 5),
    ("canvas_length", 0),
    ("canvas_length", -16),
    ("canvas_length", "16"),
    ("canvas_length", True),
    ("canvas_length", 16.0),
    ("canvas_length", 10**8),
    ("tie_word_embeddings", False),
    ("tie_word_embeddings", 1),
    ("eos_token_id", [1, -2]),
    ("eos_token_id", [True]),
    ("eos_token_id", {"id": 1}),
    ("image_token_id", "x"),
    ("boi_token_id", -1),
    ("dtype", "int8"),
    ("dtype", 16),
    ("text_config", None),
    ("text_config", []),
    ("vision_config", "none"),
    ("generation_config", []),
]


@pytest.mark.parametrize(("name", "value"), TOP_FAULTS)
def test_a_wrong_top_field_is_named(name: str, value: Any) -> None:
    assert message({**tiny_config(), name: value}).startswith(f"{name} ")


def test_a_context_without_room_beside_a_canvas_is_refused() -> None:
    config = tiny_config()
    config["canvas_length"] = config["text_config"]["max_position_embeddings"]
    assert "no room for a prompt" in message(config)


def _rope(kind: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["text_config"]["rope_parameters"][kind].update(changes)

    return change


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_rope("full_attention", rope_type="yarn"), "full_attention.rope_type"),
        (_rope("full_attention", rope_theta=0), "full_attention.rope_theta"),
        (_rope("full_attention", rope_theta=None), "full_attention.rope_theta"),
        (
            _rope("full_attention", partial_rotary_factor=1.5),
            "full_attention.partial_rotary_factor",
        ),
        (_rope("full_attention", partial_rotary_factor=-1), "full_attention.partial_rotary_factor"),
        (_rope("full_attention", factor=8.0), "full_attention.factor"),
        (
            _rope("sliding_attention", partial_rotary_factor=0.5),
            "sliding_attention.partial_rotary_factor",
        ),
    ],
)
def test_a_wrong_rope_setting_is_named(
    change: Callable[[dict[str, Any]], None], field: str
) -> None:
    config = tiny_config()
    change(config)
    assert message(config).startswith(f"text_config.rope_parameters.{field} ")


def test_a_number_too_long_to_print_is_refused() -> None:
    assert message(tiny_config(vocab_size=10**6000)).endswith("not a huge number.")
    assert message(tiny_config(rms_norm_eps=10**6000)).endswith("not a huge number.")


def test_values_in_messages_are_short_and_printable() -> None:
    text = message(tiny_config(model_type="\x1b[31m\u202e" + "x" * 5000))
    assert text.isascii() and text.isprintable() and len(text) < 200


def test_reading_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    assert read_config(tmp_path).generation.source == "default"
    (tmp_path / "generation_config.json").write_text(json.dumps(TINY_GENERATION))
    assert read_config(tmp_path).generation.source == "file"


def test_a_missing_folder_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no model folder"):
        read_config(tmp_path / "absent")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    (tmp_path / "generation_config.json").symlink_to(tmp_path / "gone.json")
    with pytest.raises(ModelError, match=r"generation_config\.json cannot be read"):
        read_config(tmp_path)
