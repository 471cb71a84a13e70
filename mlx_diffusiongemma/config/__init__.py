"""A checkpoint's config.json and generation_config.json as checked, frozen dataclasses.

Reads both the original files and those of MLX conversions. Tensors are left to `checkpoint`.
"""

from mlx_diffusiongemma.config.generation import GenerationConfig
from mlx_diffusiongemma.config.model import ModelConfig, parse_config, read_config
from mlx_diffusiongemma.config.quantization import QuantizationConfig, QuantizationSpec
from mlx_diffusiongemma.config.text import LayerConfig, RopeConfig, TextConfig

__all__ = [
    "GenerationConfig",
    "LayerConfig",
    "ModelConfig",
    "QuantizationConfig",
    "QuantizationSpec",
    "RopeConfig",
    "TextConfig",
    "parse_config",
    "read_config",
]
