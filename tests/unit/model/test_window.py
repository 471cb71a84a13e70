"""Which tokens a position can depend on: one change at a time, and everything that moves."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from mlx_diffusiongemma.model.transformer import DiffusionGemma
from tests.parity.cases import Case
from tests.parity.ours import build_ours, encode_in_chunks

WINDOW, PROMPT, CANVAS = 8, 20, 16
CASE = Case("window", 900, kinds="sf", window=WINDOW, prompt=PROMPT, canvas=CANVAS)


@pytest.fixture
def sliding_only() -> DiffusionGemma:
    """One sliding layer and a full layer whose attention adds nothing."""
    model = build_ours(CASE)
    model.layers[1].self_attn.o_proj.weight = mx.zeros_like(model.layers[1].self_attn.o_proj.weight)
    return model


def changed(ids: list[int], position: int) -> list[int]:
    return [*ids[:position], (ids[position] + 1) % CASE.vocab, *ids[position + 1 :]]


def moved_rows(before: npt.NDArray[np.float32], after: npt.NDArray[np.float32]) -> list[int]:
    return np.flatnonzero((before != after).any(axis=-1)).tolist()


@pytest.mark.parametrize("chunk", [3, PROMPT])
def test_canvas_sees_window_less_one_prompt_tokens_from_every_row(
    sliding_only: DiffusionGemma, chunk: int
) -> None:
    """A rectangle: the last 7 tokens, and for all rows the same, though the canvas is longer."""
    prompt, canvas = CASE.ids(1, PROMPT), mx.array(CASE.ids(2, CANVAS))

    def logits(ids: list[int]) -> npt.NDArray[np.float32]:
        prefix = sliding_only.prefill(ids, chunk=chunk)
        return np.array(sliding_only.canvas_logits(prefix, canvas))

    before = logits(prompt)
    for position in range(PROMPT):
        rows = moved_rows(before, logits(changed(prompt, position)))
        visible = position >= PROMPT - (WINDOW - 1)
        assert rows == (list(range(CANVAS)) if visible else []), position


def test_every_canvas_row_sees_the_whole_canvas(sliding_only: DiffusionGemma) -> None:
    prefix, canvas = sliding_only.prefill(CASE.ids(1, PROMPT)), CASE.ids(2, CANVAS)
    before = np.array(sliding_only.canvas_logits(prefix, mx.array(canvas)))
    for position in range(CANVAS):
        after = sliding_only.canvas_logits(prefix, mx.array(changed(canvas, position)))
        assert moved_rows(before, np.array(after)) == list(range(CANVAS))


def test_encoder_is_causal_with_a_window(sliding_only: DiffusionGemma) -> None:
    """Token j reaches tokens j to j + window - 1, itself included."""
    prompt = CASE.ids(1, PROMPT)
    before, _ = encode_in_chunks(sliding_only, prompt, PROMPT)
    for position in range(PROMPT):
        after, _ = encode_in_chunks(sliding_only, changed(prompt, position), PROMPT)
        reached = range(position, min(position + WINDOW, PROMPT))
        assert moved_rows(before, after) == list(reached)


def test_full_layers_see_everything() -> None:
    model = build_ours(CASE)
    prompt, canvas = CASE.ids(1, PROMPT), mx.array(CASE.ids(2, CANVAS))
    before = np.array(model.canvas_logits(model.prefill(prompt), canvas))
    for position in range(PROMPT):
        prefix = model.prefill(changed(prompt, position))
        after = np.array(model.canvas_logits(prefix, canvas))
        assert moved_rows(before, after) == list(range(CANVAS))
