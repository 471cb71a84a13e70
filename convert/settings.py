"""The files beside the weights: config.json in the published form, and the copied ones.

Nothing that names code (`auto_map`, `model_file`, *.py) gets through. Which modules are packed is
decided elsewhere and only recorded here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mlx_diffusiongemma.config import ModelConfig, RopeConfig, TextConfig
from mlx_diffusiongemma.config.jsonfile import parse_json_object, read_bytes, shown
from mlx_diffusiongemma.config.model import GENERATION_FILE, MODEL_TYPES
from mlx_diffusiongemma.convert.writer import json_bytes
from mlx_diffusiongemma.errors import ModelError

COPIED = (
    "tokenizer*.json",
    "tokenizer*.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*.jinja",
    "chat_template*.json",
    "*processor_config.json",
    GENERATION_FILE,
)
_SETTINGS = ("*_config.json",)  # those that could name code
_DROPPED = frozenset(
    {
        "auto_map",
        "model_file",
        "custom_pipelines",
        "trust_remote_code",
        "_name_or_path",  # a path on the machine the model was saved on
    }
)
MAX_FILE_BYTES = 256 * 1024 * 1024


def read_side_files(folder: Path) -> dict[str, bytes]:
    """Tokenizer, template, processor and generation files of a model folder, by name.

    JSON settings lose what names code; everything else is byte for byte. Raises ModelError for a
    damaged settings file and for a link that leads out of the folder (or of its hub cache).
    """
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() or not _matches(path.name, COPIED):
            continue
        _check_link(path)
        data = read_bytes(path, limit=MAX_FILE_BYTES)
        if _matches(path.name, _SETTINGS):
            content = parse_json_object(data, path.name)
            clean = without_code(content)
            if clean != content:
                data = json_bytes(clean)
        found[path.name] = data
    return found


def output_config(
    config: ModelConfig,
    generation: Mapping[str, Any] | None,
    quantization: Mapping[str, object],
    *,
    vision: bool,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """config.json of the converted model, and notices (sentences) about it.

    The source's fields, with the text sizes spelled out in the form that every reader knows
    (`global_head_dim` and so on rather than `per_layer_config`), a copy of the generation config,
    and `quantization` twice, under both names in use. `vision_config` is null when the weights
    hold no vision tensors: mlx-vlm would otherwise expect a tower.
    """
    raw = without_code(config.raw)
    raw.pop("torch_dtype", None)
    text = {key: value for key, value in raw["text_config"].items() if key != "torch_dtype"}
    published = _published_text(config.text)
    notices = []
    if published is None:
        notices.append(
            "The layers of one kind differ in their heads, which mlx-vlm has no form for: the "
            "converted model loads here only."
        )
    else:
        text.pop("per_layer_config", None)
        text |= published
    raw |= {
        "model_type": MODEL_TYPES[0],
        "canvas_length": config.canvas_length,
        "dtype": config.dtype,
        "text_config": text,
    }
    if raw.get("generation_config") is None and generation is not None:
        raw["generation_config"] = dict(generation)
    if not vision:
        if config.vision is not None:
            notices.append("The source has no vision tensors: the converted model is text only.")
        raw["vision_config"] = None
    raw["quantization"] = dict(quantization)
    raw["quantization_config"] = dict(quantization)
    return {key: raw[key] for key in sorted(raw)}, tuple(notices)


def _published_text(text: TextConfig) -> dict[str, Any] | None:
    """The sizes of `text_config` spelled out, or None when this form cannot say them."""
    heads = {layer.num_attention_heads for layer in text.layers}
    kinds: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    for layer in text.layers:
        kinds[layer.is_full].add((layer.head_dim, layer.num_key_value_heads))
    if len(heads) > 1 or any(len(sizes) > 1 for sizes in kinds.values()):
        return None
    (full,) = kinds[True]  # the last layer is always full
    (sliding,) = kinds[False] or {full}
    return {
        "vocab_size": text.vocab_size,
        "hidden_size": text.hidden_size,
        "intermediate_size": text.intermediate_size,
        "moe_intermediate_size": text.moe_intermediate_size,
        "num_experts": text.num_experts,
        "top_k_experts": text.top_k_experts,
        "num_hidden_layers": len(text.layers),
        "layer_types": [layer.kind for layer in text.layers],
        "num_attention_heads": heads.pop(),
        "head_dim": sliding[0],
        "num_key_value_heads": sliding[1],
        "global_head_dim": full[0],
        "num_global_key_value_heads": full[1],
        "sliding_window": text.sliding_window,
        "rms_norm_eps": text.rms_norm_eps,
        "rope_parameters": {kind: _rope(rope) for kind, rope in text.rope.items()},
        "final_logit_softcapping": text.final_logit_softcapping,
        "max_position_embeddings": text.max_position_embeddings,
    }


def _rope(rope: RopeConfig) -> dict[str, Any]:
    if not rope.proportional:
        return {"rope_type": "default", "rope_theta": rope.theta}
    return {
        "rope_type": "proportional",
        "rope_theta": rope.theta,
        "partial_rotary_factor": rope.partial_rotary_factor,
    }


def without_code(content: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the fields, at any depth, that name code or a path of another machine."""

    def clean(value: Any) -> Any:
        if isinstance(value, Mapping):
            return without_code(value)
        if isinstance(value, list):
            return [clean(item) for item in value]
        return value

    return {key: clean(value) for key, value in content.items() if key not in _DROPPED}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _check_link(path: Path) -> None:
    """A link may lead within the model folder, or into the blobs of its hub cache."""
    # realpath, as resolve raises for a loop of links: the reader refuses that one in its own words.
    home, real = path.parent.resolve(), Path(os.path.realpath(path))
    allowed = [home]
    if home.parent.name == "snapshots":
        allowed.append(home.parent.parent / "blobs")
    if not any(real.is_relative_to(place) for place in allowed):
        raise ModelError(f"The file {shown(path.name)} is a link that leaves the model folder.")
