"""The whole network over one set of weights: encoder mode, canvas mode, and the tied head.

Sources: google/diffusiongemma-26B-A4B-it and its implementation in Hugging Face transformers
(`DiffusionGemmaForBlockDiffusion`), which the parity tests compare with. Batch size is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mlx.core as mx

from mlx_diffusiongemma.config import ModelConfig, QuantizationSpec
from mlx_diffusiongemma.model.cache import KeyValues, Prefix
from mlx_diffusiongemma.model.layer import Layer
from mlx_diffusiongemma.model.matrix import WeightSource, collect_arrays
from mlx_diffusiongemma.model.moe import DenseMLP

PREFILL_CHUNK = 512


class SelfConditioning:
    """Adds what the previous step believed to the canvas embeddings, then norms without weight."""

    def __init__(self, source: WeightSource, path: str, eps: float) -> None:
        self.eps = eps
        self.pre_norm = source.vector(f"{path}.pre_norm.weight")
        self.mlp = DenseMLP(source, path)

    def __call__(self, embedded: mx.array, soft: mx.array | None) -> mx.array:
        """embedded, soft (1, L, D) -> (1, L, D); soft None is the zero signal of a first step."""
        if soft is not None:
            embedded = embedded + self.mlp(mx.fast.rms_norm(soft, self.pre_norm, self.eps))
        return mx.fast.rms_norm(embedded, None, self.eps)


class DiffusionGemma:
    """The model. Its methods are pure: prefixes go in and new prefixes come out."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, mx.array],
        dtype: mx.Dtype,
        quantization: Mapping[str, QuantizationSpec] | None = None,
    ) -> None:
        """weights by canonical name; quantization says how each packed module was packed."""
        text = config.text
        source = WeightSource(weights, quantization or {}, dtype)
        self.config = config
        self.dtype = dtype
        self.embed_tokens = source.embedding("model.decoder.embed_tokens")
        self.embed_scale = mx.array(text.hidden_size**0.5, dtype=dtype)
        self.norm = source.vector("model.decoder.norm.weight")
        self.self_conditioning = SelfConditioning(
            source, "model.decoder.self_conditioning", text.rms_norm_eps
        )
        self.layers = [
            Layer(source, f"model.decoder.layers.{i}", text, layer)
            for i, layer in enumerate(text.layers)
        ]
        numbers = range(len(text.layers))
        self.encoder_scalars = source.scalars(
            [f"model.encoder.language_model.layers.{i}.layer_scalar" for i in numbers]
        )
        self.canvas_scalars = source.scalars(
            [f"model.decoder.layers.{i}.layer_scalar" for i in numbers]
        )

    def arrays(self) -> list[mx.array]:
        """Every weight and constant of the network."""
        return collect_arrays(self)

    def empty_prefix(self) -> Prefix:
        """The prefix of no tokens."""
        layers, windows = [], []
        for layer in self.config.text.layers:
            empty = mx.zeros((1, layer.num_key_value_heads, 0, layer.head_dim), dtype=self.dtype)
            layers.append(KeyValues(empty, empty))
            windows.append(None if layer.is_full else self.config.text.sliding_window)
        return Prefix(tuple(layers), tuple(windows), 0, slack=self.config.canvas_length)

    def encode(self, ids: mx.array, prefix: Prefix) -> tuple[mx.array, Prefix]:
        """Encoder mode over ids (n,): the normed hidden states (1, n, D) and the longer prefix."""
        hidden = self.embed_tokens(ids[None]) * self.embed_scale  # (1, n, D)
        grown = []
        for i, layer in enumerate(self.layers):
            hidden, joined = layer.encode(
                hidden, prefix.layers[i], prefix.length, self.encoder_scalars[i]
            )
            grown.append(joined)
        hidden = mx.fast.rms_norm(hidden, self.norm, self.config.text.rms_norm_eps)
        return hidden, prefix.extend(grown, ids.shape[0], hidden[:, -1:])

    def prefill(
        self,
        ids: Sequence[int],
        prefix: Prefix | None = None,
        *,
        chunk: int = PREFILL_CHUNK,
        progress: Callable[[int, int], None] | None = None,
    ) -> Prefix:
        """Encodes ids in chunks and evaluates after each, so memory stays linear in the prompt.

        `progress(done, total)` is called after every chunk. The result does not depend on `chunk`
        beyond rounding.
        """
        prefix = prefix or self.empty_prefix()
        for start in range(0, len(ids), chunk):
            part = mx.array(list(ids[start : start + chunk]), dtype=mx.int32)
            _, prefix = self.encode(part, prefix)
            mx.eval(*prefix.arrays)
            if progress is not None:
                progress(min(start + chunk, len(ids)), len(ids))
        return prefix

    def canvas_logits(
        self, prefix: Prefix, canvas: mx.array, previous: mx.array | None = None
    ) -> mx.array:
        """Canvas mode: soft-capped float32 logits (L, V) of canvas (L,) after `prefix`.

        `previous` (L, V) are the step before's logits after temperature, or None on a first step.
        Every canvas row sees the prefix (window layers: its last window - 1 tokens) and the whole
        canvas. The prefix is not changed.
        """
        embedded = self.embed_tokens(canvas[None]) * self.embed_scale  # (1, L, D)
        soft = None if previous is None else self.soft_embedding(previous)
        hidden = self.self_conditioning(embedded, soft)
        for i, layer in enumerate(self.layers):
            hidden = layer.denoise(hidden, prefix.visible(i), prefix.length, self.canvas_scalars[i])
        hidden = mx.fast.rms_norm(hidden, self.norm, self.config.text.rms_norm_eps)
        return self.logits(hidden)[0]

    def next_token_logits(self, prefix: Prefix) -> mx.array:
        """The autoregressive reading: soft-capped float32 logits (V,) of the token after `prefix`.

        Raises ValueError when the prefix is empty or was trimmed and nothing encoded since.
        """
        if prefix.last_hidden is None:
            raise ValueError("next-token logits need a prefix whose last token was just encoded")
        return self.logits(prefix.last_hidden)[0, 0]

    def soft_embedding(self, logits: mx.array) -> mx.array:
        """softmax(logits) @ E * sqrt(D): (L, V) -> (1, L, D).

        As in the reference, logits are held in the weights' dtype, the softmax runs in float32 and
        the probabilities are cast back before the product.
        """
        rounded = logits.astype(self.dtype).astype(mx.float32)
        probabilities = mx.softmax(rounded, axis=-1).astype(self.dtype)
        return (self.embed_tokens.mix(probabilities) * self.embed_scale)[None]

    def logits(self, hidden: mx.array) -> mx.array:
        """The tied head with the softcap in float32: (..., D) -> (..., V)."""
        raw = self.embed_tokens.head(hidden).astype(mx.float32)
        cap = self.config.text.final_logit_softcapping
        return raw if cap is None else cap * mx.tanh(raw / cap)
