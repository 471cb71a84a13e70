"""Original weights to a quantised MLX model folder."""

from mlx_diffusiongemma.convert.converter import convert_checkpoint
from mlx_diffusiongemma.convert.report import ConvertReport

__all__ = ["ConvertReport", "convert_checkpoint"]
