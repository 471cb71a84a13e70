"""The demo model's architecture: every size, and the released form of config.json."""

from dataclasses import dataclass
from typing import Any

from .tokenizer import MEDIA, VOCABULARY

STOP_IDS = [1, 106, 50]
SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Sizes:
    """Text model sizes; names follow config.json where it has one."""

    vocabulary: int = VOCABULARY
    hidden: int = 64
    layer_types: tuple[str, ...] = (SLIDING, SLIDING, FULL, SLIDING, FULL)
    heads: int = 4
    sliding_kv_heads: int = 2
    full_kv_heads: int = 1
    sliding_head_dim: int = 32
    full_head_dim: int = 64
    intermediate: int = 128
    experts: int = 8
    top_experts: int = 2
    expert_intermediate: int = 64
    window: int = 64
    canvas: int = 32
    softcap: float = 30.0
    eps: float = 1e-6
    sliding_theta: float = 1e4
    full_theta: float = 1e6
    full_rotary_factor: float = 0.25
    max_positions: int = 2048

    def head_dim(self, layer_type: str) -> int:
        return self.full_head_dim if layer_type == FULL else self.sliding_head_dim

    def kv_heads(self, layer_type: str) -> int:
        return self.full_kv_heads if layer_type == FULL else self.sliding_kv_heads


VISION = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 32,
    "max_position_embeddings": 131072,
    "model_type": "gemma4_vision",
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "patch_size": 16,
    "pooling_kernel_size": 3,
    "position_embedding_size": 64,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 100.0, "rope_type": "axial"},
    "standardize": False,
    "use_clipped_linears": False,
}


def model_config(sizes: Sizes) -> dict[str, Any]:
    """config.json in the released form (`global_head_dim`, not `per_layer_config`)."""
    media = {token: sizes.vocabulary - len(MEDIA) + i for i, token in enumerate(MEDIA)}
    text = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "final_logit_softcapping": sizes.softcap,
        "global_head_dim": sizes.full_head_dim,
        "head_dim": sizes.sliding_head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": sizes.hidden,
        "initializer_range": 0.02,
        "intermediate_size": sizes.intermediate,
        "layer_types": list(sizes.layer_types),
        "max_position_embeddings": sizes.max_positions,
        "model_type": "diffusion_gemma_text",
        "moe_intermediate_size": sizes.expert_intermediate,
        "num_attention_heads": sizes.heads,
        "num_experts": sizes.experts,
        "num_global_key_value_heads": sizes.full_kv_heads,
        "num_hidden_layers": len(sizes.layer_types),
        "num_key_value_heads": sizes.sliding_kv_heads,
        "rms_norm_eps": sizes.eps,
        "rope_parameters": {
            FULL: {
                "partial_rotary_factor": sizes.full_rotary_factor,
                "rope_theta": sizes.full_theta,
                "rope_type": "proportional",
            },
            SLIDING: {"rope_theta": sizes.sliding_theta, "rope_type": "default"},
        },
        "sliding_window": sizes.window,
        "tie_word_embeddings": True,
        "top_k_experts": sizes.top_experts,
        "use_bidirectional_attention": "vision",
        "vocab_size": sizes.vocabulary,
    }
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "boi_token_id": media["<|image>"],
        "canvas_length": sizes.canvas,
        "dtype": "bfloat16",
        "eoi_token_id": media["<image|>"],
        "eos_token_id": STOP_IDS,
        "image_token_id": media["<|image|>"],
        "initializer_range": 0.02,
        "model_type": "diffusion_gemma",
        "text_config": text,
        "tie_word_embeddings": True,
        "vision_config": VISION,
    }


GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": 2,
    "confidence_threshold": 0.005,
    "eos_token_id": STOP_IDS,
    "max_denoising_steps": 48,
    "max_new_tokens": 128,
    "pad_token_id": 0,
    "return_dict_in_generate": True,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "stability_threshold": 1,
    "t_max": 0.8,
    "t_min": 0.4,
}
