"""Pipes, devices and broken links in place of a model's small files: told, never waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_diffusiongemma.convert.settings import read_side_files
from mlx_diffusiongemma.errors import ModelError
from mlx_diffusiongemma.text.chat import load_template
from mlx_diffusiongemma.text.tokenizer import load_tokenizer
from tests.unit.text import small

PLACES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")
KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_file_is_refused_by_name(tmp_path: Path, kind: str, name: str) -> None:
    folder = small.write_library_folder(tmp_path / "model")
    if name == "chat_template.json":
        (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / name).unlink(missing_ok=True)
    KINDS[kind](folder / name)
    with pytest.raises(ModelError) as caught:
        load_tokenizer(folder)
        load_template(folder)
    assert name in caught.value.message and caught.value.message.endswith(".")
    with pytest.raises(ModelError) as caught:
        read_side_files(folder)
    assert name in caught.value.message


def test_a_file_of_endless_size_is_not_read(tmp_path: Path) -> None:
    folder = small.write_library_folder(tmp_path / "model")
    os.truncate(folder / "tokenizer.json", 2**40)  # sparse
    with pytest.raises(ModelError, match="more than the"):
        load_tokenizer(folder)
