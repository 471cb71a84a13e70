"""One matrix packed by MLX: the tensors it becomes, planned from its shape and then computed."""

from __future__ import annotations

import mlx.core as mx

from mlx_diffusiongemma.checkpoint.modules import ModuleSpec
from mlx_diffusiongemma.config import QuantizationSpec
from mlx_diffusiongemma.convert.writer import OutputTensor


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
    weight's dtype.
    """
    if spec is None:
        mx.eval(weight)
        return {module.tensor: weight}
    parts = mx.quantize(weight, group_size=spec.group_size, bits=spec.bits, mode=spec.mode)
    mx.eval(parts)
    names = ("weight", "scales", "biases")
    return {f"{module.path}.{name}": part for name, part in zip(names, parts, strict=False)}
