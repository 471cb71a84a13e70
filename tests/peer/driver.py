"""Runs inside the environment that has mlx-vlm: converts a model, or computes canvas logits.

    python driver.py convert SOURCE OUTPUT BITS GROUP MODE {default|uniform}
    python driver.py generate MODEL PROMPT
    python driver.py logits MODEL INPUTS.npz OUTPUT.npz

Uses nothing of this project, so that the numbers are the other implementation's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"


def convert(source: str, output: str, bits: str, group: str, mode: str, choice: str) -> None:
    """mlx-vlm's own conversion; uniform packs every text matrix alike, the embedding included."""
    from mlx_vlm.convert import convert as mlx_vlm_convert

    def uniform(path: str, module: object) -> bool:
        return "vision" not in path

    mlx_vlm_convert(
        source,
        output,
        quantize=True,
        q_bits=int(bits),
        q_group_size=int(group),
        q_mode=mode,
        trust_remote_code=False,
        quant_predicate=uniform if choice == "uniform" else None,
    )


def generate(model_path: str, prompt: str) -> None:
    """One answer, printed; the model, its processor and its template are loaded by mlx-vlm."""
    from mlx_vlm import generate as mlx_vlm_generate
    from mlx_vlm import load
    from mlx_vlm.prompt_utils import apply_chat_template

    model, processor = load(model_path)
    asked = apply_chat_template(processor, model.config, prompt)
    print(mlx_vlm_generate(model, processor, asked, max_tokens=32).text)


def logits(model_path: str, inputs: str, output: str) -> None:
    """Canvas logits (L, V) in float32 after a prompt: `first`, and `second` conditioned on them.

    INPUTS holds `prompt` (P,), `canvas` (L,) and `previous` (L, V), the logits of a step before.
    """
    import mlx.core as mx
    import numpy as np
    from mlx_vlm.utils import load_model

    model = load_model(Path(model_path))
    model.set_dtype(mx.float32)
    table = model.model.decoder.embed_tokens
    base: Any = type(table)

    class WideEmbedding(base):
        """Looks rows up in float32: without affine scales the type would be bfloat16."""

        def __call__(self, ids: mx.array) -> mx.array:
            rows: mx.array = super().__call__(ids)
            return rows.astype(mx.float32)

    table.__class__ = WideEmbedding
    given = np.load(inputs)
    prompt, canvas, previous = (mx.array(given[n])[None] for n in ("prompt", "canvas", "previous"))
    cache = model.make_cache()
    first = model(input_ids=prompt, canvas_ids=canvas, cache=cache).logits
    second = model(
        input_ids=None, canvas_ids=canvas, cache=cache, self_conditioning_logits=previous
    ).logits
    np.savez_compressed(
        output,
        first=np.array(first.astype(mx.float32))[0],
        second=np.array(second.astype(mx.float32))[0],
    )


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "convert": convert,
        "generate": generate,
        "logits": logits,
    }
    commands[sys.argv[1]](*sys.argv[2:])
