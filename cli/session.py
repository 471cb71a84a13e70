"""The one door to the library's runtime. Tests put a scripted runtime behind `open_runtime`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlx_diffusiongemma.cli.sanitize import one_line
from mlx_diffusiongemma.cli.status import status_line
from mlx_diffusiongemma.cli.terminal import Notes, Terminal

if TYPE_CHECKING:
    from mlx_diffusiongemma.runtime import Runtime


@dataclass(frozen=True)
class Opened:
    """A loaded model: its name as chosen, the runtime, and how long loading took."""

    name: str
    runtime: Runtime
    seconds: float


def open_runtime(model: str, revision: str | None, dtype: str | None) -> Runtime:
    """Loads a model: folder, hub name or "demo". The seam of every command that generates."""
    from mlx_diffusiongemma.runtime import load

    return load(model, revision=revision, dtype=dtype)


def hide_download_progress() -> None:
    """Keeps huggingface_hub's bars off stderr; it reads this when it is first imported."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def open_session(
    model: str, revision: str | None, dtype: str | None, terminal: Terminal, notes: Notes
) -> Opened:
    """`open_runtime` with a status line meanwhile and the runtime's notices after it."""
    if notes.quiet or terminal.dumb:
        hide_download_progress()
    start = time.perf_counter()
    with status_line(notes, terminal) as line:
        line.show(f"loading {one_line(model)}")
        runtime = open_runtime(model, revision, dtype)
    for notice in runtime.notices:
        notes.note(notice)
    return Opened(model, runtime, time.perf_counter() - start)
