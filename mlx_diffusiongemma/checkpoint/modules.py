"""Every text module and vision module a config calls for: canonical path, shape, kind.

Canonical paths are the original checkpoint's names. How files name and pack them is left to
`names` and `weights`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mlx_diffusiongemma.config import LayerConfig, ModelConfig
from mlx_diffusiongemma.config.fields import Fields

ModuleKind = Literal["embedding", "linear", "experts", "norm", "vector", "scalar", "table"]
DECODER = "model.decoder"
ENCODER = "model.encoder"
ENCODER_TEXT = f"{ENCODER}.language_model"
TOWER = f"{ENCODER}.vision_tower"
LAYER_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)
_BARE = ("vector", "scalar", "table")


@dataclass(frozen=True)
class ModuleSpec:
    """One module that owns one weight.

    `shape` is (out, in) for embedding and linear, (experts, out, in) for experts, (size,) for
    norm, vector and scalar; table is any other shape.
    """

    path: str
    shape: tuple[int, ...]
    kind: ModuleKind

    @property
    def tensor(self) -> str:
        """The canonical tensor name: the path, with `.weight` where the original has a module."""
        return self.path if self.kind in _BARE else f"{self.path}.weight"

    @property
    def quantizable(self) -> bool:
        """True for the matrices that conversions may quantise."""
        return self.kind in ("embedding", "linear", "experts")


def expected_modules(config: ModelConfig) -> dict[str, ModuleSpec]:
    """The text modules of a model, by canonical path: all must be present, each exactly once."""
    return {spec.path: spec for spec in _text_modules(config)}


def _text_modules(config: ModelConfig) -> Iterator[ModuleSpec]:
    text = config.text
    width, dense = text.hidden_size, text.intermediate_size
    yield ModuleSpec(f"{DECODER}.embed_tokens", (text.vocab_size, width), "embedding")
    for index, layer in enumerate(text.layers):
        path = f"{DECODER}.layers.{index}"
        for name in LAYER_NORMS:
            yield ModuleSpec(f"{path}.{name}", (width,), "norm")
        yield from _attention(f"{path}.self_attn", layer, width)
        yield from _mlp(f"{path}.mlp", width, dense)
        yield ModuleSpec(f"{path}.router.proj", (text.num_experts, width), "linear")
        yield ModuleSpec(f"{path}.router.scale", (width,), "vector")
        yield ModuleSpec(f"{path}.router.per_expert_scale", (text.num_experts,), "vector")
        inner = text.moe_intermediate_size
        gate_up, down = (text.num_experts, 2 * inner, width), (text.num_experts, width, inner)
        yield ModuleSpec(f"{path}.experts.gate_up_proj", gate_up, "experts")
        yield ModuleSpec(f"{path}.experts.down_proj", down, "experts")
        # Both modes share all weights of a layer but this one: prefix and canvas scale apart.
        yield ModuleSpec(f"{path}.layer_scalar", (1,), "scalar")
        yield ModuleSpec(f"{ENCODER_TEXT}.layers.{index}.layer_scalar", (1,), "scalar")
    yield ModuleSpec(f"{DECODER}.self_conditioning.pre_norm", (width,), "norm")
    yield from _mlp(f"{DECODER}.self_conditioning", width, dense)
    yield ModuleSpec(f"{DECODER}.norm", (width,), "norm")


def _attention(path: str, layer: LayerConfig, width: int) -> Iterator[ModuleSpec]:
    queries = layer.num_attention_heads * layer.head_dim
    keys = layer.num_key_value_heads * layer.head_dim
    yield ModuleSpec(f"{path}.q_proj", (queries, width), "linear")
    yield ModuleSpec(f"{path}.k_proj", (keys, width), "linear")
    if not layer.is_full:  # full layers take the key projection for their values
        yield ModuleSpec(f"{path}.v_proj", (keys, width), "linear")
    yield ModuleSpec(f"{path}.o_proj", (width, queries), "linear")
    yield ModuleSpec(f"{path}.q_norm", (layer.head_dim,), "norm")
    yield ModuleSpec(f"{path}.k_norm", (layer.head_dim,), "norm")


def _mlp(path: str, width: int, inner: int, linear: str = "") -> Iterator[ModuleSpec]:
    yield ModuleSpec(f"{path}.gate_proj{linear}", (inner, width), "linear")
    yield ModuleSpec(f"{path}.up_proj{linear}", (inner, width), "linear")
    yield ModuleSpec(f"{path}.down_proj{linear}", (width, inner), "linear")


def vision_modules(config: ModelConfig) -> dict[str, ModuleSpec]:
    """The vision tower's modules by canonical path; empty for a model without vision_config.

    Absent fields take the vision class's defaults. Raises ModelError naming a wrong field.
    """
    if config.vision is None:
        return {}
    fields = Fields(config.vision, "config.json", "vision_config")
    return {spec.path: spec for spec in _vision_modules(fields, config.text.hidden_size)}


def _vision_modules(fields: Fields, text_width: int) -> Iterator[ModuleSpec]:
    width = fields.integer("hidden_size", 768)
    inner = fields.integer("intermediate_size", 3072)
    head_dim = fields.integer("head_dim", 64)
    queries = fields.integer("num_attention_heads", 12) * head_dim
    keys = fields.integer("num_key_value_heads", 12) * head_dim
    patch = 3 * fields.integer("patch_size", 16) ** 2
    positions = (2, fields.integer("position_embedding_size", 10240), width)
    yield ModuleSpec(f"{TOWER}.patch_embedder.input_proj", (width, patch), "linear")
    yield ModuleSpec(f"{TOWER}.patch_embedder.position_embedding_table", positions, "table")
    if fields.flag("standardize", False):
        yield ModuleSpec(f"{TOWER}.std_bias", (width,), "vector")
        yield ModuleSpec(f"{TOWER}.std_scale", (width,), "vector")
    for index in range(fields.integer("num_hidden_layers", 16, most=1024)):
        path = f"{TOWER}.encoder.layers.{index}"
        for name in LAYER_NORMS[:4]:
            yield ModuleSpec(f"{path}.{name}", (width,), "norm")
        yield ModuleSpec(f"{path}.self_attn.q_proj.linear", (queries, width), "linear")
        yield ModuleSpec(f"{path}.self_attn.k_proj.linear", (keys, width), "linear")
        yield ModuleSpec(f"{path}.self_attn.v_proj.linear", (keys, width), "linear")
        yield ModuleSpec(f"{path}.self_attn.o_proj.linear", (width, queries), "linear")
        yield ModuleSpec(f"{path}.self_attn.q_norm", (head_dim,), "norm")
        yield ModuleSpec(f"{path}.self_attn.k_norm", (head_dim,), "norm")
        yield from _mlp(f"{path}.mlp", width, inner, ".linear")
    projection = f"{ENCODER}.embed_vision.embedding_projection"
    yield ModuleSpec(projection, (text_width, width), "linear")
