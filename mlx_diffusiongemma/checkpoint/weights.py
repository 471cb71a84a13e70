"""Loads a checked checkpoint: canonical names, fused experts, one floating type.

The checks themselves are in `plan`; building the network from the arrays is left to `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlx_diffusiongemma.checkpoint.index import Checkpoint
from mlx_diffusiongemma.checkpoint.plan import plan_weights, read_source
from mlx_diffusiongemma.config import ModelConfig, QuantizationSpec
from mlx_diffusiongemma.config.jsonfile import shown
from mlx_diffusiongemma.errors import ModelError

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True)
class LoadedWeights:
    """The text weights by canonical name, all evaluated.

    A quantised module has `.weight` (uint32), `.scales` and, when affine, `.biases`;
    `quantization` maps its path to how it is packed. Layer scalars have the shape (1,). `ignored`
    and `vision` are the stored names that were recognised and not read.
    """

    weights: dict[str, mx.array]
    quantization: Mapping[str, QuantizationSpec]
    ignored: tuple[str, ...]
    vision: tuple[str, ...]


def load_weights(
    checkpoint: Checkpoint, config: ModelConfig, *, dtype: mx.Dtype | None = None
) -> LoadedWeights:
    """Check every tensor, then load the text weights, module by module.

    Floating tensors (scales and biases of affine modules too) are cast to `dtype`, by default
    config.dtype; packed weights and the uint8 scales of the mx and nv modes stay as they are. At
    no time is more than one module held twice. Raises ModelError as `plan_weights` does, or when
    a file cannot be read.
    """
    import mlx.core as mx

    plan = plan_weights(checkpoint, config)
    target: mx.Dtype = getattr(mx, config.dtype) if dtype is None else dtype
    weights: dict[str, mx.array] = {}
    for module in plan.modules.values():
        arrays = {name: read_source(checkpoint, item) for name, item in module.tensors.items()}
        for name, array in arrays.items():
            if mx.issubdtype(array.dtype, mx.floating):
                array = array.astype(target)
            arrays[name] = array.reshape(1) if module.spec.kind == "scalar" else array
        try:
            mx.eval(list(arrays.values()))
        except RuntimeError:
            stored = next(iter(module.tensors.values())).names[0]
            file = checkpoint.tensors[stored].file
            raise ModelError(f"{shown(file)} cannot be read to its end.") from None
        weights.update(arrays)
    packed = {path: item.quantization for path, item in plan.modules.items() if item.quantization}
    return LoadedWeights(weights, packed, plan.ignored, plan.vision)
