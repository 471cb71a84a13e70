"""Weight matrices, dense or quantised, and the products the network takes with them.

One class per way a matrix is used: `Linear` (x @ W.T), `Embedding` (rows, head, soft mix) and
`ExpertStack` (one product per row with that row's expert). Which matrices exist is decided
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlx_diffusiongemma.config import QuantizationSpec

# mlx's CPU kernels for quantised products work one row at a time: from about this many rows on,
# dequantising once and calling the BLAS is faster (18 times at 256 x 2816 x 2112, 4 bits).
CPU_DENSE_ROWS = 16


class Matrix:
    """One weight of shape (..., out, in), dense or packed by `mx.quantize` along `in`."""

    def __init__(
        self,
        weight: mx.array,
        scales: mx.array | None = None,
        biases: mx.array | None = None,
        spec: QuantizationSpec | None = None,
        dtype: mx.Dtype = mx.float32,
    ) -> None:
        self.weight = weight
        self.scales = scales
        self.biases = biases
        self.spec = spec
        self.dtype = dtype

    @property
    def quantized(self) -> bool:
        return self.scales is not None

    @property
    def packing(self) -> dict[str, Any]:
        """The keywords that tell MLX's quantised operations how the weight is packed."""
        assert self.spec is not None
        return {
            "group_size": self.spec.group_size,
            "bits": self.spec.bits,
            "mode": self.spec.mode,
        }

    def dense(self, rows: mx.array | None = None) -> mx.array:
        """The matrix (or the given rows of it) in the activations' dtype."""
        if self.scales is None:
            return self.weight if rows is None else self.weight[rows]
        parts = [self.weight, self.scales, self.biases]
        if rows is not None:
            parts = [None if part is None else part[rows] for part in parts]
        weight, scales, biases = parts
        assert weight is not None and scales is not None
        return mx.dequantize(weight, scales, biases, **self.packing).astype(self.dtype)

    def product(self, x: mx.array, transpose: bool) -> mx.array:
        """x @ W.T (transpose) or x @ W for a two-dimensional W."""
        if self.scales is None or _blas_is_faster(x):
            weight = self.dense()
            return x @ (weight.T if transpose else weight)
        return mx.quantized_matmul(
            x, self.weight, self.scales, self.biases, transpose=transpose, **self.packing
        )


class Linear(Matrix):
    """A projection without bias: (..., in) -> (..., out)."""

    def __call__(self, x: mx.array) -> mx.array:
        return self.product(x, transpose=True)


class Embedding(Matrix):
    """The tied table E (V, D): token rows, the language model head, and mixes of rows."""

    def __call__(self, ids: mx.array) -> mx.array:
        """Unscaled rows E[ids]: (..., n) -> (..., n, D)."""
        return self.dense(ids)

    def head(self, hidden: mx.array) -> mx.array:
        """hidden @ E.T: (..., D) -> (..., V)."""
        return self.product(hidden, transpose=True)

    def mix(self, probabilities: mx.array) -> mx.array:
        """probabilities @ E: (..., V) -> (..., D)."""
        return self.product(probabilities, transpose=False)


class ExpertStack(Matrix):
    """One (out, in) matrix per expert, fused into (E, out, in)."""

    def __call__(self, x: mx.array, experts: mx.array) -> mx.array:
        """Product of row n of x (N, 1, in) with expert experts[n]; `experts` (N,) is sorted."""
        if self.scales is None:
            weight, dtype = self.weight.swapaxes(-1, -2), x.dtype
            if dtype != mx.float32 and _on_cpu():
                # mlx's CPU gather_mm knows only float32.
                x, weight = x.astype(mx.float32), weight.astype(mx.float32)
            out = mx.gather_mm(x, weight, rhs_indices=experts, sorted_indices=True)
            return out.astype(dtype)
        return mx.gather_qmm(
            x,
            self.weight,
            self.scales,
            self.biases,
            rhs_indices=experts,
            transpose=True,
            sorted_indices=True,
            **self.packing,
        )


class WeightSource:
    """Hands out the matrices and vectors of a checkpoint by canonical name."""

    def __init__(
        self,
        weights: Mapping[str, mx.array],
        quantization: Mapping[str, QuantizationSpec],
        dtype: mx.Dtype,
    ) -> None:
        self._weights = weights
        self._quantization = quantization
        self.dtype = dtype

    def vector(self, name: str) -> mx.array:
        return self._weights[name].astype(self.dtype)

    def scalars(self, names: list[str]) -> mx.array:
        """Scalars stored as [1] or [] under each name, as one (len(names),) vector."""
        return mx.concatenate([self.vector(name).reshape(1) for name in names])

    def linear(self, path: str) -> Linear:
        return Linear(*self._parts(path), dtype=self.dtype)

    def embedding(self, path: str) -> Embedding:
        return Embedding(*self._parts(path), dtype=self.dtype)

    def experts(self, path: str) -> ExpertStack:
        return ExpertStack(*self._parts(path), dtype=self.dtype)

    def _parts(
        self, path: str
    ) -> tuple[mx.array, mx.array | None, mx.array | None, QuantizationSpec | None]:
        weight = self._weights[path + ".weight"]
        scales = self._weights.get(path + ".scales")
        if scales is None:
            return weight.astype(self.dtype), None, None, None
        spec = self._quantization[path]
        biases = self._weights.get(path + ".biases")
        if biases is not None:
            # Scales and biases in the activations' dtype: with bfloat16 ones the dequantised
            # values would be rounded before a float32 product.
            scales, biases = scales.astype(self.dtype), biases.astype(self.dtype)
        return weight, scales, biases, spec


def collect_arrays(part: object) -> list[mx.array]:
    """Every array held by a model part, its lists and its sub-parts."""
    if isinstance(part, mx.array):
        return [part]
    if isinstance(part, list):
        return [array for item in part for array in collect_arrays(item)]
    if type(part).__module__.startswith("mlx_diffusiongemma.model"):
        return [array for item in vars(part).values() for array in collect_arrays(item)]
    return []


def _blas_is_faster(x: mx.array) -> bool:
    rows = x.size // x.shape[-1]
    return rows >= CPU_DENSE_ROWS and _on_cpu()


def _on_cpu() -> bool:
    return bool(mx.default_device() == mx.Device(mx.cpu))
