"""One transformer layer: attention, dense MLP beside experts, and the layer scalar at the end."""

from __future__ import annotations

import mlx.core as mx

from mlx_diffusiongemma.config import LayerConfig, TextConfig
from mlx_diffusiongemma.model.attention import Attention
from mlx_diffusiongemma.model.cache import KeyValues
from mlx_diffusiongemma.model.matrix import WeightSource
from mlx_diffusiongemma.model.moe import DenseMLP, Experts, Router


class Layer:
    """One layer's weights; the two modes differ in attention and in the scalar they end with."""

    def __init__(
        self, source: WeightSource, path: str, text: TextConfig, layer: LayerConfig
    ) -> None:
        self.eps = text.rms_norm_eps
        self.self_attn = Attention(source, f"{path}.self_attn", text, layer)
        self.mlp = DenseMLP(source, f"{path}.mlp")
        self.router = Router(source, f"{path}.router", text)
        self.experts = Experts(source, f"{path}.experts")
        self.input_layernorm = source.vector(f"{path}.input_layernorm.weight")
        self.post_attention_layernorm = source.vector(f"{path}.post_attention_layernorm.weight")
        self.pre_feedforward_layernorm = source.vector(f"{path}.pre_feedforward_layernorm.weight")
        self.post_feedforward_layernorm = source.vector(f"{path}.post_feedforward_layernorm.weight")
        self.post_feedforward_layernorm_1 = source.vector(
            f"{path}.post_feedforward_layernorm_1.weight"
        )
        self.pre_feedforward_layernorm_2 = source.vector(
            f"{path}.pre_feedforward_layernorm_2.weight"
        )
        self.post_feedforward_layernorm_2 = source.vector(
            f"{path}.post_feedforward_layernorm_2.weight"
        )

    def encode(
        self, x: mx.array, past: KeyValues, offset: int, scalar: mx.array
    ) -> tuple[mx.array, KeyValues]:
        """Encoder mode: x (1, n, D) -> (1, n, D) and the layer's keys and values so far."""
        attended, joined = self.self_attn.encode(self._norm(x, self.input_layernorm), past, offset)
        return self._finish(x, attended, scalar), joined

    def denoise(self, x: mx.array, visible: KeyValues, offset: int, scalar: mx.array) -> mx.array:
        """Canvas mode: x (1, L, D) -> (1, L, D)."""
        attended = self.self_attn.denoise(self._norm(x, self.input_layernorm), visible, offset)
        return self._finish(x, attended, scalar)

    def _finish(self, x: mx.array, attended: mx.array, scalar: mx.array) -> mx.array:
        residual = x + self._norm(attended, self.post_attention_layernorm)
        dense = self.mlp(self._norm(residual, self.pre_feedforward_layernorm))
        mixed = self._norm(dense, self.post_feedforward_layernorm_1) + self._norm(
            self._routed(residual), self.post_feedforward_layernorm_2
        )
        # The scalar multiplies the whole stream, after the residual addition.
        return (residual + self._norm(mixed, self.post_feedforward_layernorm)) * scalar

    def _routed(self, residual: mx.array) -> mx.array:
        flat = residual.reshape(-1, residual.shape[-1])  # (T, D)
        experts, weights = self.router(flat)
        normed = self._norm(flat, self.pre_feedforward_layernorm_2)
        return self.experts(normed, experts, weights).reshape(residual.shape)

    def _norm(self, x: mx.array, weight: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, weight, self.eps)
