"""The language model's shape (`text_config`): dataclasses and their strict reading.

Fields and class defaults are those of transformers' DiffusionGemmaTextConfig. Sampler settings,
quantisation and the vision tower are left to other modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, cast

from mlx_diffusiongemma.config.fields import Fields
from mlx_diffusiongemma.config.jsonfile import shown
from mlx_diffusiongemma.errors import ModelError

LayerKind = Literal["sliding_attention", "full_attention"]
LAYER_KINDS: tuple[LayerKind, ...] = ("sliding_attention", "full_attention")
MAX_LAYERS = 1024
_PER_LAYER = ("head_dim", "num_attention_heads", "num_key_value_heads")


@dataclass(frozen=True)
class LayerConfig:
    """The attention of one layer: its kind, head size and head counts."""

    kind: LayerKind
    head_dim: int
    num_attention_heads: int
    num_key_value_heads: int

    @property
    def is_full(self) -> bool:
        """True for full attention, False for a sliding window."""
        return self.kind == "full_attention"


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding of one layer kind.

    `proportional`: head_dim/2 frequencies of which the first int(partial * head_dim / 2) turn and
    the rest stay still; otherwise all of them turn.
    """

    theta: float
    partial_rotary_factor: float = 1.0
    proportional: bool = False


@dataclass(frozen=True)
class TextConfig:
    """Sizes of the language model; `rope` maps a layer kind to its rotary settings."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    num_experts: int
    top_k_experts: int
    layers: tuple[LayerConfig, ...]
    sliding_window: int
    rms_norm_eps: float
    rope: Mapping[str, RopeConfig]
    final_logit_softcapping: float | None
    max_position_embeddings: int
    pad_token_id: int | None
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None


def parse_text_config(fields: Fields) -> TextConfig:
    """Read `text_config`; raises ModelError naming the field for every wrong value.

    Required, because the class has no default that could run or the default would only hide a
    damaged file: vocab_size, hidden_size, num_experts, top_k_experts, moe_intermediate_size. All
    others take the class default when absent.
    """
    _refuse_unsupported(fields)
    kinds = _layer_kinds(fields, fields.integer("num_hidden_layers", 30, most=MAX_LAYERS))
    num_experts = fields.integer("num_experts")
    softcap = None
    if fields.values.get("final_logit_softcapping", 30.0) is not None:
        softcap = fields.number("final_logit_softcapping", 30.0, open_end=True)
    eos_token_ids = fields.token_ids("eos_token_id")
    return TextConfig(
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size", 9216),
        moe_intermediate_size=fields.integer("moe_intermediate_size"),
        num_experts=num_experts,
        top_k_experts=fields.integer("top_k_experts", most=num_experts),
        layers=_layers(fields, kinds),
        sliding_window=fields.integer("sliding_window", 512),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6, open_end=True),
        rope=_rope(fields, kinds),
        final_logit_softcapping=softcap,
        max_position_embeddings=fields.integer("max_position_embeddings", 131072),
        pad_token_id=fields.optional_integer("pad_token_id", 0),
        eos_token_ids=(1,) if eos_token_ids is None else eos_token_ids,
        bos_token_id=fields.optional_integer("bos_token_id", 2),
    )


def _refuse_unsupported(fields: Fields) -> None:
    fields.choice("hidden_activation", ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
    if fields.flag("attention_bias", False):
        fields.fail("attention_bias", "be false")
    if not fields.flag("tie_word_embeddings", True):
        fields.fail("tie_word_embeddings", "be true")
    fields.choice("use_bidirectional_attention", ("vision",), "vision")


def _layer_kinds(fields: Fields, count: int) -> tuple[LayerKind, ...]:
    """`layer_types`, or five sliding layers to one full; the last layer is always full."""
    given = fields.values.get("layer_types")
    if given is None:
        kinds = [LAYER_KINDS[(index + 1) % 6 == 0] for index in range(count)]
    else:
        if not isinstance(given, list | tuple) or len(given) != count:
            fields.fail("layer_types", f"be a list of num_hidden_layers ({count}) names")
        for kind in given:
            if kind not in LAYER_KINDS:
                raise ModelError(
                    f"{fields.path('layer_types')} in {fields.file} may hold only "
                    f"{' and '.join(LAYER_KINDS)}, not {shown(kind)}."
                )
        kinds = [cast(LayerKind, kind) for kind in given]
    return (*kinds[:-1], "full_attention")


def _layers(fields: Fields, kinds: tuple[LayerKind, ...]) -> tuple[LayerConfig, ...]:
    base = {
        "head_dim": fields.integer("head_dim", 256),
        "num_attention_heads": fields.integer("num_attention_heads", 8),
        "num_key_value_heads": fields.integer("num_key_value_heads", 4),
    }
    if "per_layer_config" in fields.values:
        overrides = _per_layer_overrides(fields, len(kinds))
    else:
        full = {"head_dim": fields.integer("global_head_dim", 512)}
        if fields.has("num_global_key_value_heads"):
            full["num_key_value_heads"] = fields.integer("num_global_key_value_heads")
        overrides = {index: full for index, kind in enumerate(kinds) if kind == "full_attention"}
    layers = tuple(
        LayerConfig(kind, **{**base, **overrides.get(index, {})})
        for index, kind in enumerate(kinds)
    )
    _check_layers(fields, layers)
    return layers


def _per_layer_overrides(fields: Fields, count: int) -> dict[int, dict[str, int]]:
    """`per_layer_config`: layer number -> values that replace the base values there."""
    section = fields.section("per_layer_config")
    overrides: dict[int, dict[str, int]] = {}
    for key in section.values if section else ():
        number = str(key)
        if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < count):
            raise ModelError(
                f"{fields.path('per_layer_config')} in {fields.file} names layer {shown(number)}, "
                f"but the model has layers 0 to {count - 1}."
            )
        assert section is not None
        layer = section.section(key)
        if layer is None or int(number) in overrides:
            section.fail(key, "be one object a layer")
        for name, value in layer.values.items():
            # The class allows any field here; one that repeats the base value changes nothing.
            if name not in _PER_LAYER and value != fields.values.get(name, []):
                layer.fail(name, "be left out (only head sizes and counts can differ by layer)")
        overrides[int(number)] = {
            name: layer.integer(name) for name in _PER_LAYER if name in layer.values
        }
    return overrides


def _check_layers(fields: Fields, layers: tuple[LayerConfig, ...]) -> None:
    head_dims: dict[str, int] = {}
    for index, layer in enumerate(layers):
        if layer.head_dim % 2:
            name = "global_head_dim" if layer.is_full else "head_dim"
            raise ModelError(
                f"{fields.path(_named(fields, name, index))} in {fields.file} must be even, "
                f"not {layer.head_dim}."
            )
        if layer.num_attention_heads % layer.num_key_value_heads:
            name = "num_global_key_value_heads" if layer.is_full else "num_key_value_heads"
            if not fields.has(name):
                name = "num_key_value_heads"
            raise ModelError(
                f"{fields.path(_named(fields, name, index))} in {fields.file} must divide "
                f"num_attention_heads ({layer.num_attention_heads}), "
                f"not be {layer.num_key_value_heads}."
            )
        if head_dims.setdefault(layer.kind, layer.head_dim) != layer.head_dim:
            raise ModelError(
                f"{fields.path('per_layer_config')} in {fields.file} gives {layer.kind} layers "
                "different head_dim values."
            )


def _named(fields: Fields, name: str, index: int) -> str:
    """The field that set a layer's value: the flat name, or the layer's own override."""
    overrides = fields.values.get("per_layer_config")
    base = name.replace("num_global_", "num_").replace("global_", "")
    if isinstance(overrides, Mapping):
        own = overrides.get(str(index))
        if isinstance(own, Mapping) and base in own:
            return f"per_layer_config.{index}.{base}"
        return base
    return base if "per_layer_config" in fields.values else name


def _rope(fields: Fields, kinds: tuple[LayerKind, ...]) -> Mapping[str, RopeConfig]:
    section = fields.section("rope_parameters")
    if section is None:
        return MappingProxyType(
            {
                "sliding_attention": RopeConfig(10_000.0),
                "full_attention": RopeConfig(1_000_000.0, 0.25, proportional=True),
            }
        )
    rope: dict[str, Any] = {}
    for kind in LAYER_KINDS:
        settings = section.section(kind)
        if settings is not None:
            rope[kind] = _rope_of_kind(settings)
        elif kind in kinds:
            section.missing(kind)
    return MappingProxyType(rope)


def _rope_of_kind(fields: Fields) -> RopeConfig:
    kind = fields.choice("rope_type", ("default", "proportional"), "default")
    partial = fields.number("partial_rotary_factor", 1.0)
    if partial > 1.0:
        fields.fail("partial_rotary_factor", "be at most 1")
    if kind == "default" and partial != 1.0:
        fields.fail("partial_rotary_factor", "be 1 with rope_type default")
    if fields.number("factor", 1.0) != 1.0:
        fields.fail("factor", "be 1")
    theta = fields.number("rope_theta", open_end=True)
    return RopeConfig(theta, partial, proportional=kind == "proportional")
