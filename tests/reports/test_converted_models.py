"""What a conversion must carry over, seen through the commands.

Elsewhere a template in its own file was lost, the sampler's values were baked in or dropped, and
text prompts failed for want of an image preprocessor's file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlx_diffusiongemma import load
from mlx_diffusiongemma.text.chat import encode_chat
from tests.checkpoints import TINY_GENERATION
from tests.reports.models import run, write_model

TUNED = {
    **TINY_GENERATION,
    "max_denoising_steps": 5,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.7},
}
CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "<|channel>thought\nhm\n<channel|>Hi."},
    {"role": "user", "content": "Bye"},
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only config, generation config, tokenizer files and weights: no processor's files."""
    folder = tmp_path_factory.mktemp("tuned") / "source"
    return write_model(folder, generation=TUNED, canvas_length=12, ends=[], shards=3)


@pytest.fixture(scope="module")
def converted(source: Path) -> Path:
    target = source.parent / "converted"
    ran = run("convert", source, "-o", target)
    assert (ran.code, ran.err) == (0, "")
    return target


def test_the_template_renders_the_same_ids(source: Path, converted: Path) -> None:
    assert not (source / "chat_template.json").exists()
    assert "chat_template" not in json.loads((source / "tokenizer_config.json").read_text())
    ids = []
    for folder in (source, converted):
        runtime = load(folder)
        assert runtime.template is not None
        ids.append(encode_chat(runtime.template, runtime.tokenizer, CHAT))
    assert ids[0] == ids[1] and len(ids[0]) > 20


@pytest.mark.parametrize("which", ["source", "converted"])
def test_a_retuned_sampler_and_canvas_hold(
    which: str, source: Path, converted: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(which)
    ask = ("generate", "-m", folder, "-p", "hi", "--seed", "1", "-q")
    told = json.loads(run(*ask, "--json").out)
    assert (told["tokens"], told["canvases"]) == (48, 4)  # 48 new tokens, canvases of 12
    assert max(told["steps"]) <= 5
    assert load(folder).settings().entropy_bound == 0.7
    assert json.loads(run(*ask, "--json", "--steps", "2").out)["steps"] == [2] * 4


def test_absent_sampler_values_are_assumed_and_said(source: Path, tmp_path: Path) -> None:
    bare = write_model(tmp_path / "bare", generation=None, ends=[])
    ran = run("generate", "-m", bare, "-p", "hi", "--max-tokens", "1", "--steps", "1")
    assert ran.code == 0
    note = next(line for line in ran.err.splitlines() if "generation config" in line)
    assert note.startswith("note: ") and "max_denoising_steps 48" in note


def test_text_needs_no_image_files(source: Path, converted: Path) -> None:
    for folder in (source, converted):
        assert not list(folder.glob("*processor*"))
        assert (
            run("chat", "-m", folder, "--steps", "1", "--max-tokens", "2", stdin="a\nb\n").code == 0
        )
