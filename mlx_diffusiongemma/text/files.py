"""Reads the small text and JSON files of a model folder; what they mean is left to the callers."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from mlx_diffusiongemma.errors import ModelError

# Real files: a template of 17 KB, a tokenizer_config.json of 2 KB (6,000 added tokens make 1 MB).
MAX_SMALL_FILE = 64 * 1024 * 1024  # bytes
MAX_FILE = 256 * 1024 * 1024  # bytes; the real tokenizer.json has 33 million
LFS_MARK = "version https://git-lfs"
GET_AGAIN = "Download or convert the model again."


def is_there(path: Path) -> bool:
    """Whether a folder has this entry: a link that leads nowhere is there, and damaged."""
    return os.path.lexists(path)


def read_bytes(path: Path, limit: int = MAX_FILE) -> bytes:
    """The bytes of a regular file, or ModelError when it has none or more than `limit`."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{path.name} is not a regular file.", GET_AGAIN)
            if status.st_size > limit:
                raise ModelError(
                    f"{path.name} is {status.st_size} bytes long, more than the {limit} allowed.",
                    "This does not look like a file of this model.",
                )
            data = stream.read()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelError(f"{path} cannot be read: {reason}.", GET_AGAIN) from error
    if data.startswith(LFS_MARK.encode()):
        raise ModelError(
            f"{path.name} is only a Git LFS pointer, not the file itself.",
            "Fetch the real files, for instance with `git lfs pull`.",
        )
    return data


def read_text(path: Path, limit: int = MAX_SMALL_FILE) -> str:
    """The text of a UTF-8 file; a leading byte order mark is dropped."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path.name} is not UTF-8 text.", GET_AGAIN) from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or ModelError when there is something else in it."""
    try:
        value = json.loads(read_text(path))
    except RecursionError as error:
        raise ModelError(f"{path.name} is nested too deeply.", GET_AGAIN) from error
    except ValueError as error:
        raise ModelError(f"{path.name} is not valid JSON: {error}.", GET_AGAIN) from error
    if not isinstance(value, dict):
        raise ModelError(
            f"{path.name} holds a {type(value).__name__} where an object is expected.", GET_AGAIN
        )
    return value


def one_line(text: str, limit: int = 300) -> str:
    """Text of a foreign library or file as one printable line, fit for an error message."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
