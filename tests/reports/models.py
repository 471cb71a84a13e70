"""What these tests share: a small random model with a working tokenizer, and the real commands."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import mlx_diffusiongemma.demo
from mlx_diffusiongemma.cli.program import app
from tests.checkpoints import TINY_GENERATION, tiny_config, tiny_weights, write_checkpoint

ROOT = Path(__file__).parents[2]
DEMO = Path(mlx_diffusiongemma.demo.__file__).parent
VOCABULARY = json.loads((DEMO / "config.json").read_text())["text_config"]["vocab_size"]
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def write_model(
    folder: Path,
    *,
    generation: dict[str, Any] | None = TINY_GENERATION,
    shards: int = 1,
    ends: list[int] | None = None,
    **overrides: Any,
) -> Path:
    """Two layers of random weights with the demo model's tokenizer and template, nothing else.

    ends: the only end tokens that the files declare (None: those of the released model).
    """
    config = tiny_config(
        vocab_size=VOCABULARY,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        **overrides,
    )
    if ends is not None:
        config["eos_token_id"] = config["text_config"]["eos_token_id"] = ends
        generation = None if generation is None else {**generation, "eos_token_id": ends}
    write_checkpoint(folder, config, tiny_weights(config), generation=generation, shards=shards)
    for name in TEXT_FILES:
        shutil.copy(DEMO / name, folder / name)
    if ends is not None:
        path = folder / "tokenizer_config.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "eos_token": None}))
    return folder


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def run(*args: object, stdin: str | bytes = "") -> Ran:
    """Runs a command of the program in this process, on real models."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)
