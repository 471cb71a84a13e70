"""The sampler's defaults a checkpoint carries: generation_config.json, or a copy in config.json.

Command-line flags that override them, and what they do, are left to the denoising loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from mlx_diffusiongemma.config.fields import Fields
from mlx_diffusiongemma.errors import ModelError

Source = Literal["file", "embedded", "default"]
DEFAULTS: Mapping[str, float] = MappingProxyType(
    {
        "max_new_tokens": 256,
        "max_denoising_steps": 48,
        "entropy_bound": 0.1,
        "t_min": 0.4,
        "t_max": 0.8,
        "stability_threshold": 1,
        "confidence_threshold": 0.005,
    }
)  # transformers' own fallbacks, equal to the released model's values
_NESTED = {
    "entropy_bound": "sampler_config",
    "t_min": "linear_temperature_schedule_config",
    "t_max": "linear_temperature_schedule_config",
    "stability_threshold": "diffusion_stopping_config",
    "confidence_threshold": "diffusion_stopping_config",
}
_LARGEST = 1e30  # as the denoising loop has it
_WHOLE = {"max_new_tokens": 1, "max_denoising_steps": 1, "stability_threshold": 0}


@dataclass(frozen=True)
class GenerationConfig:
    """Sampler defaults; entropies in nats, temperatures as divisors of the logits.

    `source` is the best place any value came from; `notices` say in words which values had to
    be assumed, for the caller to tell the user once.
    """

    max_new_tokens: int
    max_denoising_steps: int
    entropy_bound: float
    t_min: float
    t_max: float
    stability_threshold: int
    confidence_threshold: float
    pad_token_id: int
    source: Source
    notices: tuple[str, ...]


def parse_generation(
    file: Fields | None, embedded: Fields | None, pad_token_id: int | None
) -> GenerationConfig:
    """Each value from `file`, else from `embedded`, else the documented default with a notice.

    `pad_token_id` is the text config's. In each source the nested form wins over the flat one.
    t_min == t_max is accepted, also 0 and 0, which means greedy proposals. Raises ModelError
    that names the field for every wrong value.
    """
    sources = [source for source in (file, embedded) if source is not None]
    values: dict[str, Any] = {}
    origin: dict[str, Fields] = {}
    for source in sources:
        for name, (holder, value) in _read(source).items():
            if name not in values:
                values[name], origin[name] = value, holder
    assumed = [name for name in DEFAULTS if name not in values]
    values = {**DEFAULTS, **values}
    if values["t_max"] < values["t_min"]:
        low, high = origin.get("t_min"), origin.get("t_max")
        where = high or low
        assert where is not None
        raise ModelError(
            f"{where.path('t_max')} ({values['t_max']:g}) in {where.file} must not be below "
            f"t_min ({values['t_min']:g})."
        )
    pads = [source.integer("pad_token_id", -1, least=0) for source in sources]
    known = [pad for pad in (*pads, pad_token_id) if pad is not None and pad >= 0]
    return GenerationConfig(
        **values,
        pad_token_id=known[0] if known else 0,
        source="file" if file else "embedded" if embedded else "default",
        notices=_notices(bool(sources), assumed),
    )


def _read(source: Fields) -> dict[str, tuple[Fields, float]]:
    """Every value one source declares, checked, with the object that declares it."""
    sections = {name: source.section(name) for name in dict.fromkeys(_NESTED.values())}
    sampler = sections["sampler_config"]
    if sampler is not None:
        allowed = ("EntropyBoundSamplerConfig",)
        sampler.choice("_cls_name", allowed, allowed[0])
    found: dict[str, tuple[Fields, float]] = {}
    for name in DEFAULTS:
        nested = sections.get(_NESTED.get(name, ""))
        for holder in (nested, source):
            if holder is None or not holder.has(name):
                continue
            value = _checked(holder, name)
            found.setdefault(name, (holder, value))
    return found


def _checked(fields: Fields, name: str) -> float:
    if name in _WHOLE:
        return fields.integer(name, least=_WHOLE[name])
    value = fields.number(name, open_end=name == "entropy_bound")
    if value > _LARGEST:
        fields.fail(name, f"be at most {_LARGEST:g}")
    return value


def _notices(any_source: bool, assumed: list[str]) -> tuple[str, ...]:
    if not assumed:
        return ()
    values = ", ".join(f"{name} {DEFAULTS[name]:g}" for name in assumed)
    if not any_source:
        return (f"The model has no generation config; using the defaults {values}.",)
    return (f"The generation config does not give every value; assuming {values}.",)
