"""Tiny DiffusionGemma configurations and their seeded weights, without torch.

A case holds every number of a configuration and of the trial made with it. Weights come from
`RandomState.random_sample`, whose values are the same on every platform and numpy version, so
golden files need not store them. Names are the canonical ones of the checkpoint room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Weights = dict[str, npt.NDArray[np.float32]]

LAYER = "model.decoder.layers"
ENCODER_LAYER = "model.encoder.language_model.layers"
SELF_CONDITIONING = "model.decoder.self_conditioning"
NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)


@dataclass(frozen=True)
class Case:
    """One configuration and one trial.

    kinds: a letter per layer, s for sliding and f for full; the last layer is always full in both
    implementations, whatever the letter says. embedding_gain is about the spread of the logits,
    branch_gain that of what a layer adds to the stream.
    """

    name: str
    seed: int
    kinds: str = "sf"
    vocab: int = 61
    hidden: int = 24
    intermediate: int = 40
    expert_width: int = 20
    heads: int = 4
    kv_heads: int = 2
    full_kv_heads: int = 1
    head_dim: int = 8
    full_head_dim: int = 16
    experts: int = 4
    top_k: int = 2
    window: int = 8
    canvas: int = 6
    prompt: int = 13
    canvases: int = 2
    partial: float = 0.25
    softcap: float = 30.0
    theta: float = 10_000.0
    full_theta: float = 1_000_000.0
    embedding_gain: float = 2.0
    branch_gain: float = 0.3

    @property
    def full(self) -> list[bool]:
        """Per layer: whether it attends to everything."""
        return [kind == "f" for kind in self.kinds[:-1]] + [True]

    def chunks(self) -> list[int]:
        """Prefill chunk sizes to try: around the window, and the whole prompt at once."""
        sizes = {1, 7, self.window - 1, self.window, self.window + 1, self.prompt}
        return sorted(size for size in sizes if size > 0)

    def ids(self, salt: int, count: int) -> list[int]:
        """Seeded token ids."""
        return _random(self.seed * 1000 + salt).randint(0, self.vocab, count).tolist()


def config_json(case: Case, **generation: Any) -> dict[str, Any]:
    """config.json in the published form, with a vision tower as small as it gets."""
    return {
        "model_type": "diffusion_gemma",
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "canvas_length": case.canvas,
        "tie_word_embeddings": True,
        "eos_token_id": [1],
        "dtype": "float32",
        "text_config": _text_config(case),
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "patch_size": 2,
            "position_embedding_size": 4,
            "standardize": True,
        },
        **generation,
    }


def _text_config(case: Case) -> dict[str, Any]:
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    return {
        "model_type": "diffusion_gemma_text",
        "vocab_size": case.vocab,
        "hidden_size": case.hidden,
        "intermediate_size": case.intermediate,
        "moe_intermediate_size": case.expert_width,
        "num_experts": case.experts,
        "top_k_experts": case.top_k,
        "num_hidden_layers": len(case.kinds),
        "layer_types": [kinds[kind] for kind in case.kinds],
        "num_attention_heads": case.heads,
        "num_key_value_heads": case.kv_heads,
        "num_global_key_value_heads": case.full_kv_heads,
        "head_dim": case.head_dim,
        "global_head_dim": case.full_head_dim,
        "sliding_window": case.window,
        "rms_norm_eps": 1e-6,
        "final_logit_softcapping": case.softcap,
        "max_position_embeddings": 4096,
        "use_bidirectional_attention": "vision",
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": case.theta},
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": case.full_theta,
                "partial_rotary_factor": case.partial,
            },
        },
    }


def make_weights(case: Case) -> Weights:
    """Every text weight of the case, float32, by canonical name."""
    random = _random(case.seed)
    root = case.hidden**-0.5
    weights: Weights = {
        "model.decoder.embed_tokens.weight": _uniform(
            random, (case.vocab, case.hidden), case.embedding_gain * root
        ),
        "model.decoder.norm.weight": _around(random, case.hidden, 1.0),
        f"{SELF_CONDITIONING}.pre_norm.weight": _around(random, case.hidden, 0.8),
    }
    weights.update(_geglu(random, SELF_CONDITIONING, case.hidden, case.intermediate))
    for number, full in enumerate(case.full):
        weights.update(_layer(random, case, f"{LAYER}.{number}", full))
        for stack in (LAYER, ENCODER_LAYER):
            # Clearly different for the two modes.
            weights[f"{stack}.{number}.layer_scalar"] = _around(random, 1, 0.8, 0.5)
    return weights


def _layer(random: np.random.RandomState, case: Case, path: str, full: bool) -> Weights:
    head_dim = case.full_head_dim if full else case.head_dim
    kv_heads = case.full_kv_heads if full else case.kv_heads
    hidden, attention = case.hidden, f"{path}.self_attn"
    weights: Weights = {}
    for norm in NORMS:
        gain = case.branch_gain if norm in NORMS[1:4:2] else 1.0
        weights[f"{path}.{norm}.weight"] = _around(random, hidden, gain)
    widths = {"q": case.heads, "k": kv_heads} | ({} if full else {"v": kv_heads})
    for name, heads in widths.items():
        shape = (heads * head_dim, hidden)
        weights[f"{attention}.{name}_proj.weight"] = _uniform(random, shape, hidden**-0.5)
    shape = (hidden, case.heads * head_dim)
    weights[f"{attention}.o_proj.weight"] = _uniform(random, shape, shape[1] ** -0.5)
    # Scores are not divided by sqrt(head_dim): the norms carry that.
    for name in ("q_norm", "k_norm"):
        weights[f"{attention}.{name}.weight"] = _around(random, head_dim, 1.2 * head_dim**-0.25)
    weights.update(_geglu(random, f"{path}.mlp", hidden, case.intermediate))
    weights[f"{path}.router.proj.weight"] = _uniform(random, (case.experts, hidden), 1.0)
    weights[f"{path}.router.scale"] = _around(random, hidden, 1.5)
    weights[f"{path}.router.per_expert_scale"] = _around(random, case.experts, 1.0, 0.5)
    shape3 = (case.experts, 2 * case.expert_width, hidden)
    weights[f"{path}.experts.gate_up_proj.weight"] = _uniform(random, shape3, hidden**-0.5)
    shape3 = (case.experts, hidden, case.expert_width)
    root = case.expert_width**-0.5
    weights[f"{path}.experts.down_proj.weight"] = _uniform(random, shape3, root)
    return weights


def _geglu(random: np.random.RandomState, path: str, hidden: int, width: int) -> Weights:
    return {
        f"{path}.gate_proj.weight": _uniform(random, (width, hidden), hidden**-0.5),
        f"{path}.up_proj.weight": _uniform(random, (width, hidden), hidden**-0.5),
        f"{path}.down_proj.weight": _uniform(random, (hidden, width), width**-0.5),
    }


def _random(seed: int) -> np.random.RandomState:
    return np.random.RandomState(seed % 2**32)


def _uniform(
    random: np.random.RandomState, shape: tuple[int, ...], deviation: float
) -> npt.NDArray[np.float32]:
    """Uniform around zero with the given standard deviation."""
    return ((random.random_sample(shape) * 2 - 1) * (3**0.5 * deviation)).astype(np.float32)


def _around(
    random: np.random.RandomState, size: int, center: float, spread: float = 0.4
) -> npt.NDArray[np.float32]:
    """Uniform within center * (1 +- spread)."""
    return (center * (1 + spread * (random.random_sample(size) * 2 - 1))).astype(np.float32)


# What each differs in is what it is there for.
CHOSEN = (
    Case("plain", 1),
    Case("one-layer-full", 2, kinds="f", canvases=1),
    Case("last-layer-forced-full", 3, kinds="ss"),
    Case("full-first", 4, kinds="fsf", canvases=3),
    Case("full-between", 5, kinds="sfsf", hidden=40),
    Case("released-order", 6, kinds="sssssf", hidden=16, intermediate=24, prompt=21),
    Case("prompt-of-one", 7, kinds="sfsf", prompt=1, canvases=3),
    Case("prompt-of-two-window-of-two", 8, prompt=2, window=2, canvases=3),
    Case("prompt-below-window", 9, prompt=5, window=8),
    Case("prompt-is-window-less-one", 10, prompt=7, window=8),
    Case("prompt-is-window", 11, prompt=8, window=8),
    Case("prompt-is-window-and-one", 12, prompt=9, window=8),
    Case("window-below-canvas", 13, window=4, canvas=11, canvases=3),
    Case("window-is-canvas", 14, window=6, canvas=6, canvases=3),
    Case("window-above-everything", 15, window=64, canvases=3),
    Case("long-prompt", 16, kinds="sfssf", prompt=57, window=8),
    Case("canvas-of-one", 17, canvas=1, canvases=3),
    Case("one-expert-each", 18, experts=5, top_k=1),
    Case("every-expert", 19, experts=4, top_k=4),
    Case("three-of-eight", 20, experts=8, top_k=3),
    Case("rotary-half", 21, partial=0.5, prompt=30),
    Case("rotary-all", 22, partial=1.0, prompt=30),
    Case("rotary-odd-part", 23, partial=0.3, full_head_dim=20, full_theta=500.0),
    Case("same-heads", 24, full_kv_heads=2, full_head_dim=8),
    Case("no-grouping", 25, heads=3, kv_heads=3, full_kv_heads=3),
    Case("all-grouped", 26, heads=6, kv_heads=1, full_kv_heads=2),
    Case("small-full-heads", 27, head_dim=16, full_head_dim=4, full_kv_heads=4),
    Case("low-softcap", 28, softcap=4.0, embedding_gain=5.0),
    Case("odd-softcap", 29, softcap=13.7),
    Case("exact-root", 30, hidden=16, vocab=257),
)


def random_cases(count: int) -> Iterator[Case]:
    """Cases with every number drawn."""
    for seed in range(100, 100 + count):
        random = _random(seed)

        def pick(*choices: Any, random: np.random.RandomState = random) -> Any:
            return choices[random.randint(len(choices))]

        heads = pick(2, 4, 6)
        yield Case(
            f"random-{seed}",
            seed,
            kinds="".join(pick("s", "s", "f") for _ in range(pick(2, 3, 4, 5))),
            vocab=pick(48, 97, 130),
            hidden=pick(20, 28, 44, 60),
            intermediate=pick(16, 33, 50),
            expert_width=pick(8, 13, 24),
            heads=heads,
            kv_heads=pick(1, 2, heads),
            full_kv_heads=pick(1, 2, heads),
            head_dim=pick(6, 8, 12),
            full_head_dim=pick(8, 16, 24),
            experts=pick(4, 5, 6, 8),
            top_k=pick(1, 2, 3, 4),
            window=pick(2, 3, 5, 9, 17, 40),
            canvas=pick(3, 5, 8, 16),
            prompt=pick(1, 4, 11, 24, 39),
            canvases=pick(1, 2, 3),
            partial=pick(0.25, 0.5, 1.0),
            softcap=pick(30.0, 30.0, 9.0, 50.0),
            theta=pick(10_000.0, 100.0),
            full_theta=pick(1_000_000.0, 2_000.0),
        )


CASES = (*CHOSEN, *random_cases(12))


def variant(case: Case, **changes: Any) -> Case:
    """A copy with other numbers."""
    return replace(case, **changes)
