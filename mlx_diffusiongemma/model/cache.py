"""The prefix: keys and values of the tokens already encoded, as an immutable value.

Encoding more tokens gives a new `Prefix` and leaves the old one usable, so a caller may keep one
per turn and denoising can never write into it. Full layers keep every token; window layers keep
the last window - 1, plus `slack` tokens that allow a finished canvas to be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class KeyValues:
    """Keys (normed, rotated) and values (normed) of one layer: (1, H_kv, n, head_dim) each."""

    keys: mx.array
    values: mx.array

    @property
    def length(self) -> int:
        return self.keys.shape[2]

    def last(self, count: int) -> KeyValues:
        """The last `count` positions, or all of them when there are fewer."""
        if count >= self.length:
            return self
        start = self.length - count
        return KeyValues(self.keys[:, :, start:], self.values[:, :, start:])

    def without_last(self, count: int) -> KeyValues:
        stop = self.length - count
        return KeyValues(self.keys[:, :, :stop], self.values[:, :, :stop])

    def append(self, keys: mx.array, values: mx.array) -> KeyValues:
        return KeyValues(
            mx.concatenate([self.keys, keys], axis=2),
            mx.concatenate([self.values, values], axis=2),
        )


@dataclass(frozen=True)
class Prefix:
    """What the canvas looks back on: one `KeyValues` a layer and the number of tokens encoded.

    windows[i] is the sliding window of layer i, or None for full attention; `slack` is how many
    tokens beyond the window each window layer keeps so that `trim` can go back that far.
    last_hidden (1, 1, D) is the normed output for the last token; None when there is no token or
    `trim` has dropped it.
    """

    layers: tuple[KeyValues, ...]
    windows: tuple[int | None, ...]
    length: int
    slack: int
    last_hidden: mx.array | None = None

    def visible(self, layer: int) -> KeyValues:
        """What a canvas row of `layer` sees: all tokens, or the last window - 1."""
        window = self.windows[layer]
        kept = self.layers[layer]
        return kept if window is None else kept.last(window - 1)

    def extend(self, layers: list[KeyValues], count: int, last_hidden: mx.array) -> Prefix:
        """This prefix with `count` more tokens; `layers` hold old and new positions together."""
        kept = [
            new if window is None else new.last(window - 1 + self.slack)
            for new, window in zip(layers, self.windows, strict=True)
        ]
        return Prefix(tuple(kept), self.windows, self.length + count, self.slack, last_hidden)

    def can_trim(self, length: int) -> bool:
        """Whether the state after the first `length` tokens can still be recovered."""
        if not 0 <= length <= self.length:
            return False
        for layer, window in zip(self.layers, self.windows, strict=True):
            first_kept = self.length - layer.length
            first_needed = 0 if window is None else max(0, length - (window - 1))
            if first_kept > first_needed:
                return False
        return True

    def trim(self, length: int) -> Prefix:
        """The prefix of the first `length` tokens.

        Raises ValueError when `length` is out of range or the window layers no longer hold what
        that prefix would need.
        """
        if not self.can_trim(length):
            raise ValueError(f"a prefix of {self.length} tokens cannot be trimmed to {length}")
        if length == self.length:
            return self
        drop = self.length - length
        layers = tuple(layer.without_last(drop) for layer in self.layers)
        return Prefix(layers, self.windows, length, self.slack)

    @property
    def arrays(self) -> list[mx.array]:
        arrays = [array for kv in self.layers for array in (kv.keys, kv.values)]
        return arrays if self.last_hidden is None else [*arrays, self.last_hidden]
