"""Rotary position embedding of both attention kinds, as periods for `mx.fast.rope`.

Pairs are split-half: dimension i turns with dimension i + head_dim / 2.
"""

from __future__ import annotations

import mlx.core as mx

from mlx_diffusiongemma.config import RopeConfig


def rope_periods(config: RopeConfig, head_dim: int) -> mx.array:
    """Periods (1 / inverse frequency) of the head_dim / 2 pairs, float32.

    Default RoPE turns pair i by position * theta^(-2 i / head_dim). Proportional RoPE does the
    same for the first `partial_rotary_factor` of the pairs, the exponent still divided by the
    whole head_dim, and leaves the others still (an infinite period).
    """
    pairs = head_dim // 2
    periods = config.theta ** (mx.arange(0, head_dim, 2, dtype=mx.float32) / head_dim)
    if not config.proportional:
        return periods
    turning = int(config.partial_rotary_factor * head_dim / 2)
    return mx.where(mx.arange(pairs) < turning, periods, mx.array(float("inf")))


def rotate(x: mx.array, periods: mx.array, offset: int) -> mx.array:
    """Rotates x (1, H, n, head_dim), whose first row stands at position `offset`."""
    return mx.fast.rope(
        x,
        x.shape[-1],
        traditional=False,
        base=None,
        scale=1.0,
        offset=offset,
        freqs=periods,
    )
