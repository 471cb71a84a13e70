"""The whole of a model's config: reads the two files and joins the parts.

The parts themselves (text, generation, quantisation) are left to their own modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mlx_diffusiongemma.config.fields import Fields
from mlx_diffusiongemma.config.generation import GenerationConfig, parse_generation
from mlx_diffusiongemma.config.jsonfile import read_json_object, shown, shown_path
from mlx_diffusiongemma.config.quantization import QuantizationConfig, parse_quantization
from mlx_diffusiongemma.config.text import TextConfig, parse_text_config
from mlx_diffusiongemma.errors import ModelError

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
MODEL_TYPES = ("diffusion_gemma", "diffusion_gemma4")  # released, pre-release
DTYPES = ("bfloat16", "float16", "float32")
_MAX_CANVAS = 65536


@dataclass(frozen=True)
class ModelConfig:
    """Everything the files say about the model.

    `canvas_length` is in tokens; `stop_token_ids` is the sorted union of what config.json (top,
    text_config, embedded generation config) and generation_config.json declare; `vision` is
    `vision_config` as found; `dtype` is the type the weights were saved in; `raw` is config.json.
    """

    canvas_length: int
    text: TextConfig
    generation: GenerationConfig
    quantization: QuantizationConfig | None
    stop_token_ids: tuple[int, ...]
    vision: Mapping[str, Any] | None
    image_token_id: int | None
    boi_token_id: int | None
    eoi_token_id: int | None
    dtype: str
    raw: Mapping[str, Any]


def read_config(folder: Path) -> ModelConfig:
    """Read config.json and, when it is there, generation_config.json of a model folder.

    Raises ModelError, one sentence, for a missing folder or file, for damaged JSON and for every
    wrong, missing or contradictory value.
    """
    if not folder.is_dir():
        raise ModelError(f"There is no model folder {shown_path(folder)}.")
    if not (folder / CONFIG_FILE).exists():
        raise ModelError(
            f"The folder {shown_path(folder)} has no {CONFIG_FILE}.",
            "Give the folder that holds config.json and the .safetensors files.",
        )
    config = read_json_object(folder / CONFIG_FILE)
    path = folder / GENERATION_FILE
    generation = read_json_object(path) if path.exists() or path.is_symlink() else None
    return parse_config(config, generation)


def parse_config(config: Mapping[str, Any], generation: Mapping[str, Any] | None) -> ModelConfig:
    """Check the two files' contents (`generation` is None when there is no such file)."""
    top = Fields(config, CONFIG_FILE)
    _check_model_type(top)
    text_fields = top.section("text_config")
    if text_fields is None:
        top.missing("text_config")
    text = parse_text_config(text_fields)
    if not top.flag("tie_word_embeddings", True):
        top.fail("tie_word_embeddings", "be true")
    embedded = top.section("generation_config")
    file = None if generation is None else Fields(generation, GENERATION_FILE)
    vision = top.section("vision_config")
    sources = (top, text_fields, embedded, file)
    declared = [source.token_ids("eos_token_id") for source in sources if source is not None]
    stops = {token for ids in declared if ids is not None for token in ids}
    if all(ids is None for ids in declared):
        stops = set(text.eos_token_ids)
    canvas_length = top.integer("canvas_length", 256, most=_MAX_CANVAS)
    if canvas_length >= text.max_position_embeddings:
        raise ModelError(
            f"A canvas of {canvas_length} tokens leaves no room for a prompt in the context of "
            f"{text.max_position_embeddings} that {CONFIG_FILE} declares."
        )
    return ModelConfig(
        canvas_length=canvas_length,
        text=text,
        generation=parse_generation(file, embedded, text.pad_token_id),
        quantization=parse_quantization(top),
        stop_token_ids=tuple(sorted(stops)),
        vision=None if vision is None else MappingProxyType(dict(vision.values)),
        image_token_id=top.optional_integer("image_token_id", 258_880),
        boi_token_id=top.optional_integer("boi_token_id", 255_999),
        eoi_token_id=top.optional_integer("eoi_token_id", 258_882),
        dtype=_dtype(top, text_fields),
        raw=MappingProxyType(dict(config)),
    )


def _check_model_type(top: Fields) -> None:
    model_type = top.text("model_type")
    if model_type not in MODEL_TYPES:
        raise ModelError(
            f"The model's type is {shown(model_type)}, but only {MODEL_TYPES[0]} is supported.",
            "Choose a DiffusionGemma checkpoint.",
        )


def _dtype(top: Fields, text: Fields) -> str:
    for fields in (top, text):
        for name in ("dtype", "torch_dtype"):
            if fields.has(name):
                value = fields.text(name).removeprefix("torch.")
                if value not in DTYPES:
                    fields.fail(name, f"be {' or '.join(DTYPES)}")
                return value
    return "bfloat16"
