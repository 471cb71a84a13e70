"""The golden comparison notices mistakes: each known wrong network is far outside the tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mlx_diffusiongemma.model import moe
from mlx_diffusiongemma.model.attention import Attention
from mlx_diffusiongemma.model.cache import KeyValues, Prefix
from mlx_diffusiongemma.model.layer import Layer
from mlx_diffusiongemma.model.transformer import DiffusionGemma, SelfConditioning
from tests.parity.facts import TOLERANCE, differences
from tests.parity.golden import LOGIT_CASES, load_facts
from tests.parity.ours import build_ours, our_facts

Mutation = Callable[[DiffusionGemma, pytest.MonkeyPatch], None]
MUTATIONS: list[tuple[str, Mutation]] = []


def mutation(case: str) -> Callable[[Mutation], Mutation]:
    """Registers a wrong network and the golden case that must notice it."""

    def register(function: Mutation) -> Mutation:
        MUTATIONS.append((case, function))
        return function

    return register


@pytest.mark.parametrize(
    ("name", "mutate"), MUTATIONS, ids=[function.__name__ for _, function in MUTATIONS]
)
def test_is_noticed(name: str, mutate: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in LOGIT_CASES if case.name == name)
    model = build_ours(case)
    mutate(model, monkeypatch)
    gap = max(differences(our_facts(model, case, chunk=7), load_facts(case)).values())
    assert gap > 20 * TOLERANCE, gap


# ---- layer scalars ----


@mutation("released-order")
def swapped_layer_scalars(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    model.encoder_scalars, model.canvas_scalars = model.canvas_scalars, model.encoder_scalars


@mutation("released-order")
def one_set_of_layer_scalars(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    model.encoder_scalars = model.canvas_scalars


@mutation("three-of-eight")
def layer_scalar_on_the_branch_only(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    real: Any = Layer._finish

    def finish(self: Layer, x: mx.array, attended: mx.array, scalar: mx.array) -> mx.array:
        plain = real(self, x, attended, mx.array(1.0))
        return x + (plain - x) * scalar

    patch.setattr(Layer, "_finish", finish)


# ---- what attention sees ----


@mutation("long-prompt")
def canvas_sees_one_prefix_token_more(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    def visible(self: Prefix, layer: int) -> KeyValues:
        window = self.windows[layer]
        return self.layers[layer] if window is None else self.layers[layer].last(window)

    patch.setattr(Prefix, "visible", visible)


@mutation("long-prompt")
def canvas_sees_one_prefix_token_less(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    def visible(self: Prefix, layer: int) -> KeyValues:
        window = self.windows[layer]
        return self.layers[layer] if window is None else self.layers[layer].last(window - 2)

    patch.setattr(Prefix, "visible", visible)


@mutation("long-prompt")
def encoder_window_one_more(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        if layer.self_attn.window is not None:
            layer.self_attn.window += 1


@mutation("window-below-canvas")
def canvas_window_is_a_band(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    def denoise(self: Attention, x: mx.array, visible: KeyValues, offset: int) -> mx.array:
        queries, keys, values = self._project(x, offset)
        joined = visible.append(keys, values)
        rows = mx.arange(visible.length, joined.length)[:, None]
        distance = mx.abs(rows - mx.arange(joined.length)[None, :])
        mask = distance < (self.window or joined.length + 1)
        return self._output(
            mx.fast.scaled_dot_product_attention(
                queries, joined.keys, joined.values, scale=1.0, mask=mask
            )
        )

    patch.setattr(Attention, "denoise", denoise)


@mutation("three-of-eight")
def canvas_is_causal(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    def denoise(self: Attention, x: mx.array, visible: KeyValues, offset: int) -> mx.array:
        queries, keys, values = self._project(x, offset)
        joined = visible.append(keys, values)
        return self._output(
            mx.fast.scaled_dot_product_attention(
                queries, joined.keys, joined.values, scale=1.0, mask="causal"
            )
        )

    patch.setattr(Attention, "denoise", denoise)


@mutation("three-of-eight")
def canvas_positions_one_too_low(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    real: Any = Attention.denoise

    def denoise(self: Attention, x: mx.array, visible: KeyValues, offset: int) -> mx.array:
        return real(self, x, visible, offset - 1)

    patch.setattr(Attention, "denoise", denoise)


# ---- inside attention ----


@mutation("small-full-heads")
def values_from_normed_keys(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    real: Any = Attention._project

    def project(self: Attention, x: mx.array, offset: int) -> tuple[mx.array, ...]:
        queries, keys, values = real(self, x, offset)
        if self.v_proj is None:
            values = mx.fast.rms_norm(keys, None, self.eps)
        return queries, keys, values

    patch.setattr(Attention, "_project", project)


@mutation("three-of-eight")
def values_without_norm(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    real: Any = Attention._project

    def project(self: Attention, x: mx.array, offset: int) -> tuple[mx.array, ...]:
        queries, keys, _ = real(self, x, offset)
        projection = self.v_proj or self.k_proj
        return queries, keys, self._split(projection(x), self.kv_heads)

    patch.setattr(Attention, "_project", project)


@mutation("three-of-eight")
def scores_divided_by_root_of_head_size(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        layer.self_attn.q_norm = layer.self_attn.q_norm / math.sqrt(layer.self_attn.head_dim)


@mutation("three-of-eight")
def rotary_exponent_over_the_turning_part(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        attention = layer.self_attn
        if attention.window is None:
            still = mx.isinf(attention.periods)
            attention.periods = mx.where(still, attention.periods, attention.periods**4)


@mutation("three-of-eight")
def rotary_turns_every_pair(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        attention = layer.self_attn
        half = attention.head_dim // 2
        attention.periods = 1_000_000.0 ** (mx.arange(half) / half)


# ---- router and experts ----


@mutation("three-of-eight")
def router_fed_with_normed_states(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    real: Any = moe.Router.__call__

    def call(self: moe.Router, residual: mx.array) -> tuple[mx.array, mx.array]:
        owner = next(layer for layer in model.layers if layer.router is self)
        return real(self, owner._norm(residual, owner.pre_feedforward_layernorm_2))

    patch.setattr(moe.Router, "__call__", call)


@mutation("three-of-eight")
def router_without_root_of_width(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        layer.router.root = 1.0


@mutation("three-of-eight")
def router_scale_ignored(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        layer.router.scale = mx.ones_like(layer.router.scale)


@mutation("three-of-eight")
def expert_scale_ignored(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    # Applied before renormalising it would differ by a factor per token, which the norm behind
    # the experts removes again: that order cannot be told apart.
    for layer in model.layers:
        layer.router.per_expert_scale = mx.ones_like(layer.router.per_expert_scale)


@mutation("three-of-eight")
def gate_and_up_rows_swapped(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        stack = layer.experts.gate_up_proj
        gate, up = mx.split(stack.weight, 2, axis=1)
        stack.weight = mx.concatenate([up, gate], axis=1)


# ---- embeddings, self-conditioning, head ----


@mutation("three-of-eight")
def canvas_norm_in_encoder_mode_too(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    first = model.layers[0]
    real = first.encode
    patch.setattr(first, "encode", lambda x, *rest: real(mx.fast.rms_norm(x, None, 1e-6), *rest))


@mutation("three-of-eight")
def norm_weights_plus_one(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    model.norm = model.norm + 1


@mutation("three-of-eight")
def embeddings_unscaled(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    model.embed_scale = mx.array(1.0)


@mutation("three-of-eight")
def first_step_without_norm(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    real: Any = SelfConditioning.__call__

    def call(self: SelfConditioning, embedded: mx.array, soft: mx.array | None) -> mx.array:
        return embedded if soft is None else real(self, embedded, soft)

    patch.setattr(SelfConditioning, "__call__", call)


@mutation("prompt-of-one")
def self_conditioning_leaks_into_the_next_canvas(
    model: DiffusionGemma, patch: pytest.MonkeyPatch
) -> None:
    real = model.canvas_logits
    kept: list[mx.array] = []

    def canvas_logits(
        prefix: Prefix, canvas: mx.array, previous: mx.array | None = None
    ) -> mx.array:
        kept.append(real(prefix, canvas, kept[-1] if kept and previous is None else previous))
        return kept[-1]

    patch.setattr(model, "canvas_logits", canvas_logits)


@mutation("three-of-eight")
def self_conditioning_from_logits_before_temperature(
    model: DiffusionGemma, patch: pytest.MonkeyPatch
) -> None:
    real = model.soft_embedding
    patch.setattr(model, "soft_embedding", lambda logits: real(logits * 0.7))


@mutation("low-softcap")
def no_softcap(model: DiffusionGemma, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model, "logits", lambda hidden: model.embed_tokens.head(hidden))
