"""Progress of a conversion: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlx_diffusiongemma.cli.inspect import size
from mlx_diffusiongemma.cli.sanitize import one_line
from mlx_diffusiongemma.cli.terminal import Notes, Terminal

Progress = Callable[[int, int, str], None]
"""Bytes of the source dealt with, bytes in all, the module just finished."""

_TENTHS = 10
_APART = 1.0  # seconds between two plain lines


@contextmanager
def conversion_progress(terminal: Terminal, notes: Notes) -> Iterator[Progress | None]:
    """What to tell `convert_checkpoint`; None when nobody wants to know."""
    if notes.quiet:
        yield None
    elif terminal.can_draw:
        with _bar() as progress:
            yield progress
    else:
        yield plain_progress(notes)


def plain_progress(notes: Notes) -> Progress:
    """A line at every tenth, at least a second apart; quick conversions say nothing."""
    last_tenth, last_time = 0, time.monotonic()

    def progress(done: int, total: int, name: str) -> None:
        nonlocal last_tenth, last_time
        tenth = done * _TENTHS // max(total, 1)
        now = time.monotonic()
        if tenth > last_tenth and now - last_time >= _APART:
            last_tenth, last_time = tenth, now
            notes.line(f"converted {size(done)} of {size(total)} ({100 * done // total} %)")

    return progress


@contextmanager
def _bar() -> Iterator[Progress]:
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(file=sys.stderr, highlight=False, markup=False)
    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bar(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=None)

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=one_line(name))

        yield progress
