"""A wrong or damaged model folder through every command: one sentence that names what is wrong.

Elsewhere users got an import traceback, a message about a missing drafter, or an HTTP 500.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reports.models import run, write_model

INDEX = "model.safetensors.index.json"
COMMANDS: dict[str, Callable[[Path], tuple[object, ...]]] = {
    "generate": lambda folder: ("generate", "-m", folder, "-p", "hi"),
    "chat": lambda folder: ("chat", "-m", folder),
    "convert": lambda folder: ("convert", folder, "-o", folder.parent / "out"),
    "inspect": lambda folder: ("inspect", folder),
}
by_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("good") / "model", shards=3)


def copied(source: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def refused(command: str, folder: Path, *words: str) -> None:
    ran = run(*COMMANDS[command](folder), stdin="hi\n")
    assert ran.code == 3
    sentence, *hint = ran.err.splitlines()
    assert sentence.startswith("error: ") and sentence.endswith(".")
    assert all(line.startswith("hint: ") for line in hint) and len(hint) <= 1
    assert all(word in sentence for word in words), sentence
    if command != "inspect":  # it still describes what can be read
        assert ran.out == ""
    assert not (folder.parent / "out").exists()


@by_command
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gemma4", "architectures": ["Gemma4ForConditionalGeneration"]},
        {"model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 18},
        {"model_type": "gemma4_assistant", "text_config": {"model_type": "gemma4_text"}},
    ],
    ids=lambda config: str(config["model_type"]),
)
def test_another_gemma_is_named_beside_what_is_supported(
    sharded: Path, tmp_path: Path, command: str, config: dict[str, Any]
) -> None:
    folder = copied(sharded, tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(config))
    refused(command, folder, config["model_type"], "diffusion_gemma")


@by_command
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    """By its whole path: of a long one the end matters most."""
    folder = tmp_path / ("far-" * 15) / "nowhere"
    refused(command, folder, str(folder))


@by_command
def test_a_truncated_shard_is_named(sharded: Path, tmp_path: Path, command: str) -> None:
    folder = copied(sharded, tmp_path / "model")
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-64])
    refused(command, folder, shard.name)


@by_command
def test_an_index_that_names_a_missing_file(sharded: Path, tmp_path: Path, command: str) -> None:
    folder = copied(sharded, tmp_path / "model")
    shard = sorted(folder.glob("*.safetensors"))[2]
    shard.unlink()
    refused(command, folder, shard.name)


@by_command
def test_a_stale_index_of_more_shards_than_there_are(
    sharded: Path, tmp_path: Path, command: str
) -> None:
    """What other converters left behind: the source's index beside fewer files."""
    folder = copied(sharded, tmp_path / "model")
    index = json.loads((folder / INDEX).read_text())
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    other = {file: file.replace("of-00003", "of-00010") for file in files}
    index["weight_map"] = {name: other[file] for name, file in index["weight_map"].items()}
    (folder / INDEX).write_text(json.dumps(index))
    refused(command, folder, "of-00010.safetensors")
