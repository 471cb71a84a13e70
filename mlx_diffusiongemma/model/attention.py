"""Self-attention of one layer: projections, norms, rotation, and the two ways to attend.

Encoder mode is causal and yields keys and values for the prefix; canvas mode looks both ways over
[prefix | canvas] and keeps nothing. The score scale is 1: the learnt q norm carries it.
"""

from __future__ import annotations

import mlx.core as mx

from mlx_diffusiongemma.config import LayerConfig, TextConfig
from mlx_diffusiongemma.model.cache import KeyValues
from mlx_diffusiongemma.model.matrix import WeightSource
from mlx_diffusiongemma.model.rope import rope_periods, rotate

# Queries per call in encoder mode, fewer when the keys are many: masks and scores stay bounded,
# whatever the chunk and the prompt.
QUERY_BLOCK = 512
SCORES_PER_HEAD = 512 * 65536


class Attention:
    """One attention layer. Full layers have no v_proj: their V is the raw K projection."""

    def __init__(
        self, source: WeightSource, path: str, text: TextConfig, layer: LayerConfig
    ) -> None:
        self.heads = layer.num_attention_heads
        self.kv_heads = layer.num_key_value_heads
        self.head_dim = layer.head_dim
        self.window = None if layer.is_full else text.sliding_window
        self.eps = text.rms_norm_eps
        self.periods = rope_periods(text.rope[layer.kind], layer.head_dim)
        self.q_proj = source.linear(f"{path}.q_proj")
        self.k_proj = source.linear(f"{path}.k_proj")
        self.v_proj = None if layer.is_full else source.linear(f"{path}.v_proj")
        self.o_proj = source.linear(f"{path}.o_proj")
        self.q_norm = source.vector(f"{path}.q_norm.weight")
        self.k_norm = source.vector(f"{path}.k_norm.weight")

    def encode(self, x: mx.array, past: KeyValues, offset: int) -> tuple[mx.array, KeyValues]:
        """Causal attention of x (1, n, D) at positions offset.. over `past` and itself.

        Returns the output (1, n, D) and `past` with the n new positions appended.
        """
        queries, keys, values = self._project(x, offset)
        joined = past.append(keys, values)
        return self._output(attend_causal(queries, joined, self.window)), joined

    def denoise(self, x: mx.array, visible: KeyValues, offset: int) -> mx.array:
        """Attention of the canvas x (1, L, D) over what it sees of the prefix and all of itself.

        `visible` is already cut to the window, the same for every canvas row, so no mask is needed.
        """
        queries, keys, values = self._project(x, offset)
        joined = visible.append(keys, values)
        out = mx.fast.scaled_dot_product_attention(queries, joined.keys, joined.values, scale=1.0)
        return self._output(out)

    def _project(self, x: mx.array, offset: int) -> tuple[mx.array, mx.array, mx.array]:
        """Queries (1, H, n, d), keys and values (1, H_kv, n, d), normed and rotated."""
        queries = self._split(self.q_proj(x), self.heads)
        raw_keys = self._split(self.k_proj(x), self.kv_heads)
        raw_values = raw_keys if self.v_proj is None else self._split(self.v_proj(x), self.kv_heads)
        queries = mx.fast.rms_norm(queries, self.q_norm, self.eps)
        keys = mx.fast.rms_norm(raw_keys, self.k_norm, self.eps)
        values = mx.fast.rms_norm(raw_values, None, self.eps)
        return (
            rotate(queries, self.periods, offset),
            rotate(keys, self.periods, offset),
            values,
        )

    def _split(self, x: mx.array, heads: int) -> mx.array:
        batch, length, _ = x.shape
        return x.reshape(batch, length, heads, self.head_dim).swapaxes(1, 2)  # (1, heads, n, d)

    def _output(self, x: mx.array) -> mx.array:
        batch, heads, length, head_dim = x.shape
        return self.o_proj(x.swapaxes(1, 2).reshape(batch, length, heads * head_dim))


def attend_causal(
    queries: mx.array, joined: KeyValues, window: int | None, block: int | None = None
) -> mx.array:
    """Causal attention of queries (1, H, n, d), which are the last n of the keys' positions.

    With a window, key j is visible to query i when i - window < j <= i. Works through blocks of
    queries so that no mask or score matrix grows with the square of the prompt.
    """
    count = queries.shape[2]
    before = joined.length - count
    reach = joined.length if window is None else window + QUERY_BLOCK
    block = block or max(1, min(QUERY_BLOCK, SCORES_PER_HEAD // reach))
    outputs = []
    for start in range(0, count, block):
        stop = min(start + block, count)
        first = 0 if window is None else max(0, before + start - (window - 1))
        last = before + stop
        mask: str | mx.array = "causal"
        if window is not None and last - first > window:
            mask = _band(stop - start, last - first, window)
        outputs.append(
            mx.fast.scaled_dot_product_attention(
                queries[:, :, start:stop],
                joined.keys[:, :, first:last],
                joined.values[:, :, first:last],
                scale=1.0,
                mask=mask,
            )
        )
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=2)


def _band(queries: int, keys: int, window: int) -> mx.array:
    """Boolean (queries, keys) mask: causal, at most `window` keys back; ends aligned."""
    row = mx.arange(keys - queries, keys)[:, None]
    column = mx.arange(keys)[None, :]
    return (column <= row) & (column > row - window)
