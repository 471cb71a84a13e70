"""The trainable tensors by released name (without `model.decoder.`) and their start values."""

import torch

from .sizes import FULL, Sizes

Weights = dict[str, torch.Tensor]
LAYER_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)
# The two scalar vectors: `encoder_scalars[n]` and `decoder_scalars[n]` belong to layer n.
SCALARS = ("encoder_scalars", "decoder_scalars")


def initial_weights(sizes: Sizes, generator: torch.Generator) -> Weights:
    """Fan-in init; attention has scale 1.0, so q_norm starts at head_dim^-0.5 instead."""
    weights: Weights = {}

    def matrix(name: str, *shape: int, std: float | None = None) -> None:
        values = torch.randn(*shape, generator=generator)
        weights[name] = values * (shape[-1] ** -0.5 if std is None else std)

    def ones(name: str, size: int, value: float = 1.0) -> None:
        weights[name] = torch.full((size,), value)

    hidden, inner, narrow = sizes.hidden, sizes.intermediate, sizes.expert_intermediate
    matrix("embed_tokens.weight", sizes.vocabulary, hidden)
    ones("norm.weight", hidden)
    ones("self_conditioning.pre_norm.weight", hidden)
    matrix("self_conditioning.gate_proj.weight", inner, hidden)
    matrix("self_conditioning.up_proj.weight", inner, hidden)
    matrix("self_conditioning.down_proj.weight", hidden, inner)
    for number, layer_type in enumerate(sizes.layer_types):
        layer = f"layers.{number}."
        head_dim, kv_heads = sizes.head_dim(layer_type), sizes.kv_heads(layer_type)
        for norm in LAYER_NORMS:
            halved = norm in ("post_attention_layernorm", "post_feedforward_layernorm")
            ones(f"{layer}{norm}.weight", hidden, 0.5 if halved else 1.0)
        ones(f"{layer}self_attn.q_norm.weight", head_dim, head_dim**-0.5)
        ones(f"{layer}self_attn.k_norm.weight", head_dim)
        matrix(f"{layer}self_attn.q_proj.weight", sizes.heads * head_dim, hidden)
        matrix(f"{layer}self_attn.k_proj.weight", kv_heads * head_dim, hidden)
        if layer_type != FULL:
            matrix(f"{layer}self_attn.v_proj.weight", kv_heads * head_dim, hidden)
        matrix(f"{layer}self_attn.o_proj.weight", hidden, sizes.heads * head_dim)
        matrix(f"{layer}mlp.gate_proj.weight", inner, hidden)
        matrix(f"{layer}mlp.up_proj.weight", inner, hidden)
        matrix(f"{layer}mlp.down_proj.weight", hidden, inner)
        matrix(f"{layer}router.proj.weight", sizes.experts, hidden, std=1.0)
        ones(f"{layer}router.scale", hidden)
        ones(f"{layer}router.per_expert_scale", sizes.experts)
        matrix(f"{layer}experts.gate_up_proj", sizes.experts, 2 * narrow, hidden)
        matrix(f"{layer}experts.down_proj", sizes.experts, hidden, narrow)
    for name in SCALARS:
        ones(name, len(sizes.layer_types))
    return weights
