"""A random tiny checkpoint with the demo model's tokenizer, loaded as a runtime."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlx_diffusiongemma.demo
from mlx_diffusiongemma import Runtime, load
from tests.checkpoints import TINY_GENERATION, tiny_config, tiny_weights, write_checkpoint

DEMO = Path(mlx_diffusiongemma.demo.__file__).parent
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
MakeCheckpoint = Callable[..., Path]


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """Writes a checkpoint of random weights; `generation` None: no generation_config.json."""
    vocabulary = json.loads((DEMO / "config.json").read_text())["text_config"]["vocab_size"]

    def make(
        *, generation: dict[str, Any] | None = TINY_GENERATION, seed: int = 0, **overrides: Any
    ) -> Path:
        folder = tmp_path_factory.mktemp("checkpoint")
        config = tiny_config(vocab_size=vocabulary, **overrides)
        write_checkpoint(folder, config, tiny_weights(config, seed), generation=generation)
        for name in TEXT_FILES:
            shutil.copy(DEMO / name, folder / name)
        return folder

    return make


@pytest.fixture(scope="session")
def folder(make_checkpoint: MakeCheckpoint) -> Path:
    return make_checkpoint(max_position_embeddings=4096)


@pytest.fixture
def runtime(folder: Path) -> Runtime:
    """A fresh runtime whose answers never end by themselves."""
    runtime = load(folder)
    runtime.stop_ids = frozenset()
    return runtime
