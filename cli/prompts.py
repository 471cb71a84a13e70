"""Where the prompt comes from: the -p argument, standard input, or both. Loads no model.

The rules. An argument is taken as it is, backslashes included. When standard input is not a
terminal it is read to its end; the prompt is then its text, a blank line, and the argument. In
text from standard input a UTF-8 byte order mark is dropped, CRLF becomes LF, and the last newline
is dropped. `-p -` is standard input alone.
"""

from __future__ import annotations

import codecs
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mlx_diffusiongemma.cli.terminal import Notes, Terminal
from mlx_diffusiongemma.errors import UsageError

PATIENCE = 2.0  # seconds of silence on standard input before a notice says what is awaited
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_HOW = "Give one with -p, or through standard input: dgemma generate < question.txt."


def read_prompt(argument: str | None, terminal: Terminal, notes: Notes) -> str:
    """The prompt. UsageError when it is empty, not UTF-8, or nothing could ever arrive."""
    if argument is not None:
        check_text("-p", argument)
    if argument == "-":
        parts = [read_standard_input(notes)]
    elif terminal.stdin_tty:
        if argument is None:
            raise UsageError("There is no prompt.", _HOW)
        parts = [argument]
    else:
        parts = [read_standard_input(notes), argument or ""]
    prompt = "\n\n".join(part for part in parts if part.strip())
    if not prompt:
        raise UsageError("The prompt is empty.", _HOW)
    return prompt


def read_standard_input(notes: Notes) -> str:
    """All of standard input, decoded. A closed one is empty."""
    if sys.stdin is None:
        return ""
    try:
        with _explained_wait(notes):
            data = sys.stdin.buffer.read()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"Standard input cannot be read: {reason}.") from error
    return decode_input(data)


def decode_input(data: bytes) -> str:
    """Bytes to text by the rules above. UsageError names the first byte that is not UTF-8."""
    body = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + len(data) - len(body)
        raise UsageError(
            f"Standard input is not UTF-8 text: byte {offset} (0x{data[offset]:02x}) is invalid.",
            "Convert it first, for instance with iconv -t utf-8.",
        ) from error
    return text.replace("\r\n", "\n").removesuffix("\n")


def check_text(option: str, text: str) -> None:
    """UsageError when an argument's bytes were not UTF-8 (Python marks such bytes)."""
    bad = _LONE_SURROGATE.search(text)
    if bad:
        offset = len(text[: bad.start()].encode("utf-8"))
        raise UsageError(
            f"The text of {option} is not UTF-8: byte {offset} is invalid.",
            "Pass the text through standard input, in UTF-8.",
        )


@contextmanager
def _explained_wait(notes: Notes) -> Iterator[None]:
    """Says once what is awaited when standard input stays silent: an inherited open pipe, say."""
    timer = threading.Timer(
        PATIENCE,
        notes.note,
        ["reading the prompt from standard input until it ends (< /dev/null: nothing to read)."],
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
