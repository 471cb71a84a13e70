"""A draft as cells: marks dropped, channels followed, bytes joined, cut at the end token."""

from __future__ import annotations

import numpy as np

from mlx_diffusiongemma.cli.cells import Cell, CellReader, footer, settled_share
from mlx_diffusiongemma.diffusion.events import Step
from tests.cli.fake_runtime import END, FakeTokenizer


def step(ids: list[int], settled: list[bool] | None = None) -> Step:
    marks = np.array(settled if settled is not None else [True] * len(ids))
    return Step(
        canvas=2,
        step=9,
        max_steps=48,
        temperature=0.5,
        draft=np.array(ids, dtype=np.int32),
        entropies=np.zeros(len(ids), dtype=np.float32),
        accepted=marks,
        stable=False,
        converged=False,
    )


def read(text: str, *before: str) -> list[tuple[str, bool]]:
    tokenizer = FakeTokenizer()
    reader = CellReader(tokenizer, {END})
    for canvas in before:
        reader.canvas_done(tokenizer.encode(canvas))
    return [(cell.text, cell.thinking) for cell in reader.cells(step(tokenizer.encode(text)))]


def test_cells_are_tokens_with_their_marks() -> None:
    tokenizer = FakeTokenizer()
    reader = CellReader(tokenizer, {END})
    ids = [*tokenizer.encode("Once upon"), END, *tokenizer.encode(" junk")]
    cells = reader.cells(step(ids, [True, False, True, True]))
    assert cells == [Cell("Once", True, False), Cell(" upon", False, False)]


def test_marks_and_the_channels_name_are_no_text() -> None:
    assert read("<bos><|channel>thought\nhm<channel|>yes") == [
        ("", True),
        ("", True),
        ("hm", True),
        ("yes", False),
    ]


def test_a_thought_goes_on_in_the_next_canvas() -> None:
    before = "<|channel>thought\nI must"
    assert read(" add<channel|>4", before) == [(" add", True), ("4", False)]
    assert read(" more", before, "<channel|>x") == [(" more", False)]


def test_byte_tokens_are_read_together() -> None:
    assert read("a\U0001f600b\U0001f600") == [
        ("a", False),
        ("\U0001f600", False),
        ("b", False),
        ("\U0001f600", False),
    ]


def test_a_run_of_bytes_settles_as_a_whole() -> None:
    tokenizer = FakeTokenizer()
    ids = tokenizer.encode("\U0001f600")
    reader = CellReader(tokenizer, {END})
    assert reader.cells(step(ids, [True, True, False, True])) == [Cell("\U0001f600", False, False)]


def test_the_footer_counts() -> None:
    assert footer(step([0] * 4, [True, True, True, False])) == (
        "canvas 2 · step 9/48 · 75 % settled"
    )
    assert settled_share(step([0] * 256, [True] * 255 + [False])) == 99
