"""One matrix packed by MLX: the tensors it becomes, planned from its shape and then computed."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_diffusiongemma.checkpoint.modules import ModuleSpec
from mlx_diffusiongemma.config import QuantizationSpec
from mlx_diffusiongemma.convert.writer import OutputTensor
from mlx_diffusiongemma.errors import ModelError

_CHUNK = 4 * 1024 * 1024
# The bits of infinity; those of NaN, without the sign, are above.
_INFINITY = {mx.bfloat16: 0x7F80, mx.float16: 0x7C00, mx.float32: 0x7F800000}


def planned_tensors(
    module: ModuleSpec, dtype: str, spec: QuantizationSpec | None
) -> tuple[OutputTensor, ...]:
    """What a module of the source's `dtype` is written as; `spec` None leaves it as it is."""
    if spec is None:
        return (OutputTensor(module.tensor, dtype, module.shape),)
    *rows, width = module.shape
    groups = (*rows, width // spec.group_size)
    affine = spec.mode == "affine"
    scales = OutputTensor(f"{module.path}.scales", dtype if affine else "U8", groups)
    packed = OutputTensor(f"{module.path}.weight", "U32", (*rows, width * spec.bits // 32))
    if not affine:
        return packed, scales
    return packed, scales, OutputTensor(f"{module.path}.biases", dtype, groups)


def quantized(
    module: ModuleSpec, weight: mx.array, spec: QuantizationSpec | None
) -> dict[str, mx.array]:
    """The arrays of `planned_tensors`, evaluated, by tensor name.

    weight has the module's shape (..., out, in); groups run along `in`. Scales and biases keep the
    weight's dtype. Raises ModelError for a weight to be packed that is not a number: packing would
    make it an ordinary wrong one, which nobody could see any more.
    """
    mx.eval(weight)
    if spec is None:
        return {module.tensor: weight}
    if not _is_finite(weight):
        raise ModelError(
            f"{module.tensor} holds values that are not numbers.",
            "The source is damaged: download it again.",
        )
    parts = mx.quantize(weight, group_size=spec.group_size, bits=spec.bits, mode=spec.mode)
    mx.eval(parts)
    names = ("weight", "scales", "biases")
    return {f"{module.path}.{name}": part for name, part in zip(names, parts, strict=False)}


def _is_finite(weight: mx.array) -> bool:
    """Whether a bf16, fp16 or fp32 array holds numbers only.

    Judged by its bits: on a CPU ten times faster than arithmetic.
    """
    infinity = _INFINITY[weight.dtype]
    whole = mx.uint32 if weight.dtype == mx.float32 else mx.uint16
    bits = np.array(weight.view(whole), copy=False).reshape(-1)
    sign = 1 << (8 * bits.itemsize - 1)
    return all(
        int((bits[start : start + _CHUNK] & (sign - 1)).max()) < infinity
        for start in range(0, bits.size, _CHUNK)
    )
