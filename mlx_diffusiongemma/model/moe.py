"""The feed-forward half of a layer: dense GEGLU, router, and the mixture of experts."""

from __future__ import annotations

import math

import mlx.core as mx

from mlx_diffusiongemma.config import TextConfig
from mlx_diffusiongemma.model.matrix import WeightSource


def geglu(gate: mx.array, up: mx.array) -> mx.array:
    """gelu(gate) * up with the tanh form of GELU, whose inside is computed in float32."""
    x = gate.astype(mx.float32)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return (0.5 * x * (1 + mx.tanh(inner))).astype(gate.dtype) * up


class DenseMLP:
    """down(gelu(gate x) * up x); also the shape of the self-conditioning block."""

    def __init__(self, source: WeightSource, path: str) -> None:
        self.gate_proj = source.linear(f"{path}.gate_proj")
        self.up_proj = source.linear(f"{path}.up_proj")
        self.down_proj = source.linear(f"{path}.down_proj")

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(geglu(self.gate_proj(x), self.up_proj(x)))


class Router:
    """Chooses top_k experts per token from the raw residual stream and weighs them."""

    def __init__(self, source: WeightSource, path: str, text: TextConfig) -> None:
        self.top_k = text.top_k_experts
        self.eps = text.rms_norm_eps
        self.root = text.hidden_size**-0.5
        self.proj = source.linear(f"{path}.proj")
        self.scale = source.vector(f"{path}.scale")
        self.per_expert_scale = source.vector(f"{path}.per_expert_scale")

    def __call__(self, residual: mx.array) -> tuple[mx.array, mx.array]:
        """residual (T, D) -> experts (T, k) uint32 and weights (T, k) float32.

        Softmax over all experts in float32, the k largest renormalised to sum 1, and only then
        multiplied by the per-expert scale (so the weights need not sum to 1).
        """
        normed = mx.fast.rms_norm(residual, None, self.eps) * self.scale * self.root
        probabilities = mx.softmax(self.proj(normed).astype(mx.float32), axis=-1)  # (T, E)
        experts = mx.argpartition(-probabilities, kth=self.top_k - 1, axis=-1)[:, : self.top_k]
        weights = mx.take_along_axis(probabilities, experts, axis=-1)  # (T, k)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return experts, weights * self.per_expert_scale[experts]


class Experts:
    """The routed experts: fused gate and up rows, then down, summed with the router's weights."""

    def __init__(self, source: WeightSource, path: str) -> None:
        self.gate_up_proj = source.experts(f"{path}.gate_up_proj")
        self.down_proj = source.experts(f"{path}.down_proj")

    def __call__(self, x: mx.array, experts: mx.array, weights: mx.array) -> mx.array:
        """x (T, D), experts and weights (T, k) -> (T, D).

        The T * k (token, expert) pairs are sorted by expert, so each expert's rows are one block.
        """
        tokens, top_k = experts.shape
        flat = experts.reshape(-1)
        order = mx.argsort(flat)
        chosen = flat[order]  # (T * k,) ascending
        rows = x[order // top_k][:, None, :]  # (T * k, 1, D)
        gate, up = mx.split(self.gate_up_proj(rows, chosen), 2, axis=-1)
        out = self.down_proj(geglu(gate, up), chosen)[:, 0, :]  # (T * k, D)
        out = out[mx.argsort(order)].reshape(tokens, top_k, -1)
        return (out * weights[..., None]).sum(axis=1).astype(x.dtype)
