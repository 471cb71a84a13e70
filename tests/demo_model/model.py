"""The model in torch for training: encoder mode and canvas mode over one set of weights.

It follows the reference equations and is checked against transformers by parity.py. The
encoder's keys and values serve both the first (no-gradient) and the second canvas pass.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from .ops import experts, geglu, rms_norm, rotate, soft_cap
from .sizes import FULL, SLIDING, Sizes
from .weights import Weights

KeysValues = list[tuple[Tensor, Tensor]]  # per layer, (B, kv heads, L, head_dim) each
TABLE_LENGTH = 1024


def rotary_table(sizes: Sizes, layer_type: str) -> tuple[Tensor, Tensor]:
    """(cos, sin) of shape (positions, head_dim / 2)."""
    head_dim = sizes.head_dim(layer_type)
    half = head_dim // 2
    theta = sizes.full_theta if layer_type == FULL else sizes.sliding_theta
    frequencies = theta ** (-torch.arange(half, dtype=torch.float32) * 2 / head_dim)
    if layer_type == FULL:  # "proportional": the other pairs do not turn
        frequencies[int(sizes.full_rotary_factor * half) :] = 0
    angles = torch.arange(TABLE_LENGTH, dtype=torch.float32)[:, None] * frequencies
    return angles.cos(), angles.sin()


@dataclass
class DemoModel:
    """Forward passes; `balance` gathers the experts' load-balance loss while it is a list."""

    sizes: Sizes
    weights: Weights
    balance: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {kind: rotary_table(self.sizes, kind) for kind in (SLIDING, FULL)}

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) after the last norm -> soft-capped (..., V)."""
        return soft_cap(hidden @ self.weights["embed_tokens.weight"].T, self.sizes.softcap)

    def encode(self, ids: Tensor) -> tuple[Tensor, KeysValues]:
        """Causal pass over ids (B, L), padded at the end -> (hidden (B, L, D), keys/values)."""
        length = ids.shape[1]
        x = self._embed(ids)
        rows, columns = torch.arange(length)[:, None], torch.arange(length)[None]
        seen = {FULL: columns <= rows}
        seen[SLIDING] = seen[FULL] & (columns > rows - self.sizes.window)
        masks = {kind: _additive(allowed) for kind, allowed in seen.items()}
        turns = {kind: (cos[:length], sin[:length]) for kind, (cos, sin) in self.tables.items()}
        cache: KeysValues = []
        for number, kind in enumerate(self.sizes.layer_types):
            scalar = self.weights["encoder_scalars"][number]
            x, keys, values = self._layer(number, x, turns[kind], masks[kind], None, scalar)
            cache.append((keys, values))
        return rms_norm(x, self.weights["norm.weight"]), cache

    def denoise(
        self, canvas: Tensor, prefix: Tensor, cache: KeysValues, soft: Tensor | None
    ) -> Tensor:
        """One canvas pass -> hidden (B, C, D) after the last norm.

        canvas: ids (B, C). prefix: tokens of each row that the canvas may see, (B,).
        soft: self-conditioning probabilities (b, C, V) of the first b <= B rows.
        """
        weights, sizes = self.weights, self.sizes
        x = self._embed(canvas)
        if soft is not None:
            signal = self._self_conditioning(soft)
            x = x + F.pad(signal, (0, 0, 0, 0, 0, len(x) - len(signal)))
        x = rms_norm(x)
        length = cache[0][0].shape[2]
        columns = torch.arange(length + sizes.canvas)[None]
        own = columns >= length
        seen = {FULL: own | (columns < prefix[:, None])}
        seen[SLIDING] = own | (seen[FULL] & (columns >= prefix[:, None] - (sizes.window - 1)))
        masks = {kind: _additive(allowed)[:, None, None] for kind, allowed in seen.items()}
        positions = prefix[:, None] + torch.arange(sizes.canvas)
        turns = {
            kind: (cos[positions][:, None], sin[positions][:, None])
            for kind, (cos, sin) in self.tables.items()
        }
        for number, kind in enumerate(sizes.layer_types):
            scalar = weights["decoder_scalars"][number]
            x, _, _ = self._layer(number, x, turns[kind], masks[kind], cache[number], scalar)
        return rms_norm(x, weights["norm.weight"])

    def _embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weights["embed_tokens.weight"]) * self.sizes.hidden**0.5

    def _self_conditioning(self, soft: Tensor) -> Tensor:
        weights, name = self.weights, "self_conditioning."
        signal = soft @ self.weights["embed_tokens.weight"] * self.sizes.hidden**0.5
        normed = rms_norm(signal, weights[name + "pre_norm.weight"])
        return self._mlp(name, normed)

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        weights = self.weights
        gate_up = torch.cat((weights[f"{name}gate_proj.weight"], weights[f"{name}up_proj.weight"]))
        return geglu(x @ gate_up.T) @ weights[f"{name}down_proj.weight"].T

    def _layer(
        self,
        number: int,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        mask: Tensor,
        past: tuple[Tensor, Tensor] | None,
        scalar: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights, name = self.weights, f"layers.{number}."

        def norm(value: Tensor, which: str) -> Tensor:
            return rms_norm(value, weights[f"{name}{which}.weight"])

        normed = norm(x, "input_layernorm")
        attended, keys, values = self._attention(number, normed, turn, mask, past)
        x = x + norm(attended, "post_attention_layernorm")
        dense = self._mlp(f"{name}mlp.", norm(x, "pre_feedforward_layernorm"))
        chosen = self._experts(name, x, norm(x, "pre_feedforward_layernorm_2"))
        both = norm(dense, "post_feedforward_layernorm_1") + norm(
            chosen, "post_feedforward_layernorm_2"
        )
        return (x + norm(both, "post_feedforward_layernorm")) * scalar, keys, values

    def _attention(
        self,
        number: int,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        mask: Tensor,
        past: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        sizes, weights = self.sizes, self.weights
        kind, name = sizes.layer_types[number], f"layers.{number}.self_attn."
        head_dim, kv_heads = sizes.head_dim(kind), sizes.kv_heads(kind)
        batch, length, _ = x.shape
        wanted = ("q", "k") if kind == FULL else ("q", "k", "v")
        projection = torch.cat([weights[f"{name}{part}_proj.weight"] for part in wanted])
        heads = (x @ projection.T).view(batch, length, -1, head_dim).transpose(1, 2)
        queries, keys, *rest = heads.split([sizes.heads] + [kv_heads] * (len(wanted) - 1), dim=1)
        values = rms_norm(rest[0] if rest else keys)  # full layers: the raw key projection
        queries = rotate(rms_norm(queries, weights[f"{name}q_norm.weight"]), *turn)
        keys = rotate(rms_norm(keys, weights[f"{name}k_norm.weight"]), *turn)
        all_keys, all_values = keys, values
        if past is not None:
            all_keys = torch.cat((past[0], keys), 2)
            all_values = torch.cat((past[1], values), 2)
        repeat = sizes.heads // kv_heads
        out = F.scaled_dot_product_attention(
            queries,
            all_keys.repeat_interleave(repeat, 1),
            all_values.repeat_interleave(repeat, 1),
            attn_mask=mask,
            scale=1.0,
        )
        joined = out.transpose(1, 2).reshape(batch, length, -1)
        return joined @ weights[f"{name}o_proj.weight"].T, keys, values

    def _experts(self, name: str, residual: Tensor, x: Tensor) -> Tensor:
        """Routes by the raw residual; x is the normed input of the experts."""
        weights, sizes = self.weights, self.sizes
        flat = residual.reshape(-1, sizes.hidden)
        scaled = rms_norm(flat) * (weights[f"{name}router.scale"] * sizes.hidden**-0.5)
        probabilities = (scaled @ weights[f"{name}router.proj.weight"].T).softmax(-1)
        top, index = probabilities.topk(sizes.top_experts, -1)
        share = top / top.sum(-1, keepdim=True) * weights[f"{name}router.per_expert_scale"][index]
        order = index.flatten().argsort(stable=True)
        counts = torch.bincount(index.flatten(), minlength=sizes.experts)
        if torch.is_grad_enabled():
            load = counts / index.numel()
            self.balance.append(sizes.experts * (probabilities.mean(0) * load).sum())
        token = order // sizes.top_experts
        rows = x.reshape(-1, sizes.hidden).index_select(0, token)
        out = experts(
            rows,
            weights[f"{name}experts.gate_up_proj"],
            weights[f"{name}experts.down_proj"],
            counts.tolist(),
        )
        out = out * share.flatten().index_select(0, order)[:, None]
        return torch.zeros_like(flat).index_add(0, token, out).view_as(residual)


def _additive(allowed: Tensor) -> Tensor:
    """Boolean mask -> 0 where allowed, -1e30 elsewhere."""
    return torch.zeros(allowed.shape).masked_fill_(~allowed, -1e30)
