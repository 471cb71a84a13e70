"""The prefix as a value: passes never change it, and it grows, shrinks and splits exactly."""

from __future__ import annotations

import hashlib

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.diffusion.denoise import generate
from mlx_diffusiongemma.diffusion.draws import KeyDraws
from mlx_diffusiongemma.diffusion.events import CanvasDone, CanvasStarted, Step
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.model.cache import Prefix
from mlx_diffusiongemma.session import Session
from tests.parity.cases import Case
from tests.parity.ours import build_ours, encode_in_chunks, prefix_arrays

CASE = Case("prefix", 910, kinds="ssf", window=8, prompt=50, canvas=6)


def digest(prefix: Prefix) -> str:
    value = hashlib.sha256(str(prefix.length).encode())
    for array in prefix.arrays:
        value.update(np.array(array).tobytes())
    return value.hexdigest()


@pytest.mark.parametrize("chunk", [1, 7, 8, 9, 16, 49, 50])
def test_chunks_change_nothing(chunk: int) -> None:
    model, prompt = build_ours(CASE), CASE.ids(1, CASE.prompt)
    whole, pieces = model.prefill(prompt), model.prefill(prompt, chunk=chunk)
    assert pieces.length == whole.length == CASE.prompt
    for mine, other in zip(prefix_arrays(pieces), prefix_arrays(whole), strict=True):
        for a, b in zip(mine, other, strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= 1e-5
    canvas = mx.array(CASE.ids(2, CASE.canvas))
    ours, exact = (np.array(model.canvas_logits(prefix, canvas)) for prefix in (pieces, whole))
    assert np.abs(ours - exact).max() <= 1e-5
    ours, exact = (np.array(model.next_token_logits(prefix)) for prefix in (pieces, whole))
    assert np.abs(ours - exact).max() <= 1e-5


def test_denoising_never_touches_the_prefix_and_commits_add_one_canvas() -> None:
    model = build_ours(CASE)
    session = Session(model, model.prefill(CASE.ids(1, CASE.prompt)))
    settings = DiffusionSettings(max_steps=3, stability_threshold=3)
    canvases = 3
    before = digest(session.prefix)
    events = generate(
        session, settings, KeyDraws(1), max_tokens=canvases * CASE.canvas, stop_ids=()
    )
    for event in events:
        if isinstance(event, CanvasStarted):
            before = digest(session.prefix)
            assert session.prefix.length == CASE.prompt + (event.canvas - 1) * CASE.canvas
        if isinstance(event, Step | CanvasDone):
            assert digest(session.prefix) == before
    assert session.prefix.length == CASE.prompt + (canvases - 1) * CASE.canvas


def test_old_prefixes_stay_usable_when_new_ones_grow() -> None:
    model = build_ours(CASE)
    prefix = model.prefill(CASE.ids(1, CASE.prompt))
    before = digest(prefix)
    branches = [model.encode(mx.array(CASE.ids(salt, 6)), prefix)[1] for salt in (3, 4)]
    assert digest(prefix) == before
    assert len({digest(branch) for branch in branches}) == 2
    again = model.encode(mx.array(CASE.ids(3, 6)), prefix)[1]
    assert digest(again) == digest(branches[0])


def test_sliding_layers_keep_only_what_they_need() -> None:
    model = build_ours(CASE)
    prefix = model.prefill(CASE.ids(1, CASE.prompt))
    kept = [layer.length for layer in prefix.layers]
    bound = CASE.window - 1 + prefix.slack
    assert kept == [bound, bound, CASE.prompt]
    assert [prefix.visible(i).length for i in range(3)] == [CASE.window - 1] * 2 + [CASE.prompt]


def test_commit_can_be_taken_back() -> None:
    model = build_ours(CASE)
    prefix = model.prefill(CASE.ids(1, CASE.prompt))
    committed = model.encode(mx.array(CASE.ids(3, CASE.canvas)), prefix)[1]
    back = committed.trim(CASE.prompt)
    assert back.length == prefix.length
    for mine, other in zip(prefix_arrays(back), prefix_arrays(prefix), strict=True):
        for a, b in zip(mine, other, strict=True):
            assert (a == b).all()


def test_trim_refuses_what_is_gone() -> None:
    prefix = build_ours(CASE).prefill(CASE.ids(1, CASE.prompt))
    oldest = CASE.prompt - prefix.slack
    assert prefix.can_trim(oldest)
    for length in (oldest - 1, CASE.prompt + 1, -1):
        assert not prefix.can_trim(length)
        with pytest.raises(ValueError, match="cannot be trimmed"):
            prefix.trim(length)


def test_next_token_logits_need_a_last_token() -> None:
    model = build_ours(CASE)
    with pytest.raises(ValueError, match="next-token"):
        model.next_token_logits(model.empty_prefix())
    prefix = model.prefill(CASE.ids(1, CASE.prompt))
    with pytest.raises(ValueError, match="next-token"):
        model.next_token_logits(prefix.trim(CASE.prompt - 1))


def test_autoregressive_reading_agrees_token_by_token() -> None:
    model, prompt = build_ours(CASE), CASE.ids(1, 12)
    logits, _ = encode_in_chunks(model, prompt, 12)
    prefix = model.empty_prefix()
    for position, token in enumerate(prompt):
        prefix = model.prefill([token], prefix)
        assert np.abs(np.array(model.next_token_logits(prefix)) - logits[position]).max() <= 1e-5


def test_an_empty_prompt_is_possible() -> None:
    model = build_ours(CASE)
    prefix = model.prefill([])
    assert prefix.length == 0
    logits = model.canvas_logits(prefix, mx.array(CASE.ids(2, CASE.canvas)))
    assert logits.shape == (CASE.canvas, CASE.vocab)
    assert mx.isfinite(logits).all().item()


def test_progress_is_told_after_every_chunk() -> None:
    told: list[tuple[int, int]] = []
    build_ours(CASE).prefill(
        CASE.ids(1, 20), chunk=8, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(8, 20), (16, 20), (20, 20)]
