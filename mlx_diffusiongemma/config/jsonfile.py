"""Strict JSON objects from model files: size, depth, encoding and duplicate keys are checked.

What the values mean, and which are required, is left to the callers.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlx_diffusiongemma.errors import ModelError

MAX_DEPTH = 32
MAX_CONFIG_BYTES = 16 * 1024 * 1024
_SHOWN = 60
_SHOWN_PATH = 200


def shown(value: object) -> str:
    """A short printable ASCII form of any value found in a file, safe inside a message."""
    if isinstance(value, str):
        text = ascii(value[:_SHOWN])
        return text if len(value) <= _SHOWN else f"{text[:-1]}...{text[-1]}"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return "a huge number"  # int-to-text conversion itself has a limit
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path safe inside a message; of a very long one the end, which says the most."""
    text = os.fspath(path)
    short = text if len(text) <= _SHOWN_PATH else f"...{text[-_SHOWN_PATH:]}"
    return repr(short)  # keeps letters of every script, escapes all that does not print


def parse_json_object(data: bytes, label: str) -> dict[str, Any]:
    """Parse UTF-8 JSON bytes that must be one object; `label` names the source in messages.

    Raises ModelError for bytes that are not UTF-8 or not JSON, for a key given twice in any
    object, for nesting deeper than 32 and for anything but an object at the top.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"{label} is not UTF-8 text.", "Download the file again.") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique_pairs)
    except _DuplicateKey as error:
        raise ModelError(f"{label} gives the key {shown(error.key)} twice.") from None
    except RecursionError:
        raise ModelError(f"{label} is nested deeper than {MAX_DEPTH} levels.") from None
    except ValueError:
        raise ModelError(f"{label} is not valid JSON.", "Download the file again.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{label} must hold one JSON object.")
    if _deeper_than(value, MAX_DEPTH):
        raise ModelError(f"{label} is nested deeper than {MAX_DEPTH} levels.")
    return value


def read_json_object(path: Path, *, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Read a JSON object from a regular file of at most `limit` bytes (see parse_json_object)."""
    return parse_json_object(read_bytes(path, limit=limit), path.name)


def read_bytes(path: Path, *, limit: int) -> bytes:
    """The whole of a regular file of at most `limit` bytes; ModelError otherwise."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ModelError(f"{path.name} is not a regular file.")
            data = stream.read(limit + 1)
    except OSError as error:
        raise ModelError(f"{path.name} cannot be read: {error.strerror}.") from None
    if len(data) > limit:
        raise ModelError(f"{path.name} is larger than {limit // (1024 * 1024)} MiB.")
    return data


class _DuplicateKey(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _DuplicateKey(key)
        result[key] = value
    return result


def _deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        inner: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return False
        level = inner
    return True
