"""The sampler's defaults: both written forms, three sources, notices, and refused values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mlx_diffusiongemma.config import GenerationConfig, parse_config
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import TINY_GENERATION, tiny_config


def parse(file: Any = None, embedded: Any = None) -> GenerationConfig:
    config = tiny_config()
    if embedded is not None:
        config["generation_config"] = embedded
    return parse_config(config, file).generation


def test_the_flat_form() -> None:
    found = parse({**TINY_GENERATION, "max_denoising_steps": 5, "pad_token_id": 3})
    assert (found.max_new_tokens, found.max_denoising_steps, found.entropy_bound) == (48, 5, 0.1)
    assert (found.t_min, found.t_max) == (0.4, 0.8)
    assert (found.stability_threshold, found.confidence_threshold) == (1, 0.005)
    assert (found.pad_token_id, found.source, found.notices) == (3, "file", ())


def test_the_nested_form_wins_over_the_flat_one() -> None:
    found = parse(
        {
            **TINY_GENERATION,
            "entropy_bound": 0.9,
            "linear_temperature_schedule_config": {"t_min": 0.1, "t_max": 0.2},
            "diffusion_stopping_config": {"stability_threshold": 3, "confidence_threshold": 0.5},
        }
    )
    assert (found.t_min, found.t_max, found.entropy_bound) == (0.1, 0.2, 0.1)
    assert (found.stability_threshold, found.confidence_threshold) == (3, 0.5)


def test_half_a_nested_form_is_completed_by_the_flat_one() -> None:
    found = parse({**TINY_GENERATION, "linear_temperature_schedule_config": {"t_max": 0.7}})
    assert (found.t_min, found.t_max) == (0.4, 0.7)


def test_the_file_wins_over_the_embedded_copy() -> None:
    found = parse({**TINY_GENERATION, "t_max": 0.6}, {**TINY_GENERATION, "t_max": 0.9})
    assert (found.t_max, found.source) == (0.6, "file")


def test_the_embedded_copy_alone() -> None:
    found = parse(None, TINY_GENERATION)
    assert (found.max_denoising_steps, found.source, found.notices) == (6, "embedded", ())


def test_the_embedded_copy_completes_the_file() -> None:
    found = parse({"eos_token_id": [1]}, TINY_GENERATION)
    assert (found.max_denoising_steps, found.source, found.notices) == (6, "file", ())


def test_without_any_source_there_is_a_notice() -> None:
    found = parse()
    assert (found.max_new_tokens, found.max_denoising_steps, found.source) == (256, 48, "default")
    assert len(found.notices) == 1
    assert "no generation config" in found.notices[0] and "t_min 0.4" in found.notices[0]


def test_missing_values_are_listed_in_a_notice() -> None:
    given = {name: v for name, v in TINY_GENERATION.items() if name != "stability_threshold"}
    found = parse(given)
    assert found.stability_threshold == 1
    assert found.notices == (
        "The generation config does not give every value; assuming stability_threshold 1.",
    )


def test_null_counts_as_absent() -> None:
    assert parse({**TINY_GENERATION, "t_min": None}).notices != ()


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0.5, 0.5), (0, 1), (0.0, 0.8)])
def test_equal_and_zero_temperatures_are_accepted(low: float, high: float) -> None:
    found = parse({**TINY_GENERATION, "t_min": low, "t_max": high})
    assert (found.t_min, found.t_max) == (low, high)


def test_pad_falls_back_to_the_text_config() -> None:
    config = tiny_config(pad_token_id=9)
    assert parse_config(config, {"pad_token_id": None}).generation.pad_token_id == 9
    assert parse_config(tiny_config(pad_token_id=None), None).generation.pad_token_id == 0


FAULTS: list[tuple[str, Any]] = [
    ("max_new_tokens", 0),
    ("max_new_tokens", "256"),
    ("max_denoising_steps", 0),
    ("max_denoising_steps", -1),
    ("max_denoising_steps", 4.0),
    ("max_denoising_steps", True),
    ("t_min", -0.1),
    ("t_min", math.nan),
    ("t_max", "0.8"),
    ("t_max", False),
    ("t_max", math.inf),
    ("t_max", 0.3),
    ("t_min", 0.9),
    ("stability_threshold", -1),
    ("stability_threshold", 1.5),
    ("stability_threshold", True),
    ("confidence_threshold", -0.1),
    ("confidence_threshold", [0.1]),
    ("sampler_config", "entropy"),
    ("sampler_config", {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0}),
    ("sampler_config", {"entropy_bound": -0.1}),
    ("sampler_config", {"entropy_bound": "0.1"}),
    ("sampler_config", {"_cls_name": "ConfidenceSamplerConfig"}),
    ("linear_temperature_schedule_config", {"t_min": 0.9, "t_max": 0.1}),
    ("linear_temperature_schedule_config", 5),
    ("diffusion_stopping_config", {"stability_threshold": -1}),
    ("t_max", 1e300),
    ("entropy_bound", 1e300),
    ("confidence_threshold", 1e300),
    ("stability_threshold", 10**30),
    ("pad_token_id", -1),
    ("pad_token_id", "0"),
    ("eos_token_id", "1"),
]


@pytest.mark.parametrize(("name", "value"), FAULTS)
def test_a_wrong_value_is_named(name: str, value: Any) -> None:
    with pytest.raises(ModelError) as caught:
        parse({**TINY_GENERATION, name: value})
    text = caught.value.message
    assert "generation_config.json" in text and text.endswith(".")
    assert name in text


def test_a_wrong_embedded_value_is_named_by_its_dotted_path() -> None:
    with pytest.raises(ModelError, match=r"^generation_config\.t_max in config\.json must "):
        parse(None, {**TINY_GENERATION, "t_max": "high"})


def test_a_flat_value_is_checked_even_when_the_nested_one_wins() -> None:
    nested = {"linear_temperature_schedule_config": {"t_min": 0.1, "t_max": 0.2}}
    with pytest.raises(ModelError, match="t_max"):
        parse({**TINY_GENERATION, **nested, "t_max": "high"})
