"""Where chat's messages come from: a line editor, a plain terminal, or a pipe.

A message is one line, or several between triple double quotes. Blank ones are skipped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlx_diffusiongemma.cli import settings
from mlx_diffusiongemma.cli.prompts import decode_input
from mlx_diffusiongemma.cli.terminal import Notes, Terminal
from mlx_diffusiongemma.errors import UsageError

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

PROMPT, MORE = ">>> ", "... "
FENCE = '"""'
LEAVE_HINT = "Ctrl-D or /bye leaves."

ReadLine = Callable[[str], str]
"""Asks with the given prompt; a line without its end. EOFError at the end of input."""


def read_message(read_line: ReadLine) -> tuple[str, bool]:
    """The next message and whether it was fenced (then it is never a command)."""
    line = read_line(PROMPT)
    if not line.lstrip().startswith(FENCE):
        return line, False
    text = line.lstrip()[len(FENCE) :]
    while not text.rstrip().endswith(FENCE):
        text += "\n" + read_line(MORE)
    return text.rstrip()[: -len(FENCE)].strip("\n"), True


def pipe_lines() -> ReadLine:
    """Lines of standard input as they arrive, decoded; nothing is ever printed."""

    def read_line(prompt: str) -> str:
        data = sys.stdin.buffer.readline() if sys.stdin is not None else b""
        if not data:
            raise EOFError
        return decode_input(data)

    return read_line


def plain_lines(notes: Notes) -> ReadLine:
    """Lines of a terminal without an editor (TERM=dumb); the prompt goes to stderr."""
    next_line = pipe_lines()

    def read_line(prompt: str) -> str:
        notes.write(prompt)
        return next_line(prompt)

    return read_line


def edited_lines(notes: Notes) -> ReadLine:
    """Lines from prompt_toolkit: history, editing, pasting of several lines."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    editor: PromptSession[str] = PromptSession(
        history=_history(notes),
        key_bindings=_bindings(),
        output=create_output(always_prefer_tty=True),
    )
    return lambda prompt: editor.prompt(prompt)


def _bindings() -> KeyBindings:
    """Drops mouse reports, which nobody asked the terminal for: the editor's own reading of them

    fails on a typed or pasted colour sequence such as ESC [ 3 1 m.
    """
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    bindings = KeyBindings()
    bindings.add(Keys.Vt100MouseEvent)(lambda event: None)
    return bindings


def line_source(terminal: Terminal, notes: Notes) -> ReadLine:
    """The right one for these streams."""
    if not terminal.stdin_tty:
        return pipe_lines()
    if terminal.dumb or not (terminal.stdout_tty or terminal.stderr_tty):
        return plain_lines(notes)
    return edited_lines(notes)


def history_path() -> Path:
    """The file of typed lines."""
    return settings.state_folder() / "chat_history"


def _history(notes: Notes) -> History:
    """The history file, readable by its owner only; in memory when it cannot be had."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except OSError as error:
        reason = error.strerror or str(error)
        notes.note(f"typed lines are not kept: {path}: {reason}.")
        return InMemoryHistory()
    return FileHistory(str(path))


def messages(
    read_line: ReadLine, refuse: Callable[[UsageError], None], interrupted: Callable[[], None]
) -> Iterator[tuple[str, bool]]:
    """All messages until the end of input. `refuse` hears of lines that are not text.

    `interrupted` hears of Ctrl-C at the prompt; it may raise to end everything.
    """
    while True:
        try:
            text, fenced = read_message(read_line)
        except EOFError:
            return
        except KeyboardInterrupt:
            interrupted()
            continue
        except UsageError as error:
            refuse(error)
            continue
        if text.strip():
            yield text, fenced
