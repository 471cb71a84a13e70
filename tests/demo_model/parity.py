"""Checks the training model against transformers: same weights, same logits."""

import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer

from .export import export
from .model import DemoModel

TOLERANCE = 1e-4


@torch.no_grad()
def largest_difference(model: DemoModel, tokenizer: Tokenizer) -> float:
    """The largest gap in float32 logits over encoder, first and self-conditioned canvas pass."""
    from transformers import DiffusionGemmaForBlockDiffusion

    sizes = model.sizes
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        export(model.weights, sizes, tokenizer, folder, dtype=torch.float32)
        reference = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, dtype=torch.float32)
    reference.eval()
    generator = torch.Generator().manual_seed(0)
    gaps: list[float] = []
    for length in (7, sizes.window + 36):  # shorter and longer than the window
        prompt = torch.randint(0, sizes.vocabulary, (1, length), generator=generator)
        canvas = torch.randint(0, sizes.vocabulary, (1, sizes.canvas), generator=generator)
        first = reference(input_ids=prompt, decoder_input_ids=canvas).logits
        second = reference(
            input_ids=prompt, decoder_input_ids=canvas, self_conditioning_logits=first
        ).logits
        state = reference.model.encoder(input_ids=prompt).last_hidden_state
        hidden, cache = model.encode(prompt)
        prefix = torch.tensor([length])
        ours = model.logits(model.denoise(canvas, prefix, cache, None))
        ours2 = model.logits(model.denoise(canvas, prefix, cache, first.softmax(-1)))
        pairs = ((first, ours), (second, ours2), (model.logits(state), model.logits(hidden)))
        gaps += [float((theirs - mine).abs().max()) for theirs, mine in pairs]
    return max(gaps)


def check_parity(model: DemoModel, tokenizer: Tokenizer) -> float:
    """Raises if the logits differ by more than `TOLERANCE`; returns the difference."""
    gap = largest_difference(model, tokenizer)
    if gap > TOLERANCE:
        raise AssertionError(f"logits differ from transformers by {gap:.2e}")
    return gap
