"""Strict JSON: caps, duplicate keys and file kinds, each refused in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlx_diffusiongemma.config.jsonfile import (
    MAX_DEPTH,
    parse_json_object,
    read_json_object,
    shown,
)
from mlx_diffusiongemma.errors import ModelError


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{}x", "not valid JSON"),
        (b"[]", "one JSON object"),
        (b"null", "one JSON object"),
        (b"\xff{}", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b'{"a":1,"a":2}', "'a' twice"),
        (b'{"b":{"a":1,"a":1}}', "'a' twice"),
        (b'{"a":' + b"9" * 5000 + b"}", "not valid JSON"),
        (nested(MAX_DEPTH + 1), "deeper than"),
        (nested(100_000), "deeper than"),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "deeper than"),
    ],
)
def test_damaged_json(data: bytes, problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        parse_json_object(data, "x.json")
    assert caught.value.message.startswith("x.json ")


def test_the_depth_allowed() -> None:
    assert parse_json_object(nested(MAX_DEPTH), "x.json")


def test_the_size_cap(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b" " * (1024 * 1024) + b"{}")
    assert read_json_object(path) == {}
    with pytest.raises(ModelError, match="larger than 1 MiB"):
        read_json_object(path, limit=1024 * 1024)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ModelError, match="not a regular file"):
        read_json_object(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ModelError, match="folder"):
        read_json_object(tmp_path / "folder.json")
    with pytest.raises(ModelError, match="cannot be read"):
        read_json_object(tmp_path / "absent.json")


def test_shown_is_short_ascii_for_anything() -> None:
    values = ["a", "\x1b[2J\n", "é" * 500, "\ud800", 10**6000, -(10**6000), ["x"] * 500, None, 1.5]
    for value in values:
        text = shown(value)
        assert text.isascii() and text.isprintable() and len(text) < 700
