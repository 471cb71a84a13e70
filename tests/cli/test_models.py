"""The commands on the real bundled model: inspect, convert, generate, chat and demo."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mlx_diffusiongemma.checkpoint.hub import resolve
from mlx_diffusiongemma.cli import demo as demo_module
from mlx_diffusiongemma.cli import progress, session, settings, terminal
from mlx_diffusiongemma.cli.program import app
from tests.cli.conftest import Ran

Run = Callable[..., Ran]
QUESTION = demo_module.QUESTIONS[0]


@pytest.fixture
def real() -> Run:
    def run(*args: str, stdin: str = "") -> Ran:
        result = CliRunner().invoke(app, list(args), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A model folder of the test's own."""
    folder = tmp_path / "copied"
    shutil.copytree(resolve("demo"), folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return folder


# ---- generate and chat ----


def test_a_seed_repeats_the_answer_and_its_numbers(real: Run) -> None:
    ask = ("generate", "-m", "demo", "-p", QUESTION.prompt, "--seed", "1", "--json")
    first, second = (json.loads(real(*ask).out) for _ in range(2))
    assert QUESTION.expected(first["answer"])
    assert first["seed"] == 1 and first["model"] == "demo" and first["finish_reason"] == "stop"
    first.pop("seconds"), second.pop("seconds")
    assert first == second


def test_statistics_are_not_in_the_answer(real: Run) -> None:
    ran = real("generate", "-m", "demo", "-p", QUESTION.prompt, "--seed", "1", "--stats")
    assert QUESTION.expected(ran.out) and ran.out.count("\n") == 1
    assert "steps/canvas" in ran.err


@pytest.mark.parametrize("tokens", [1, 33])
def test_an_answer_cut_by_its_length_is_exact_and_said(real: Run, tokens: int) -> None:
    story = demo_module.QUESTIONS[3].prompt
    ask = ("generate", "-m", "demo", "-p", story, "--seed", "1", "--max-tokens", str(tokens))
    ran = real(*ask, "--json")
    assert json.loads(ran.out)["tokens"] == tokens
    assert ran.err.startswith("note: the answer was cut after ")
    assert real(*ask, "-q").out == json.loads(ran.out)["answer"] + "\n"


def test_chat_from_a_pipe(real: Run) -> None:
    typed = "".join(question.prompt + "\n" for question in demo_module.CHAT)
    ran = real("chat", "-m", "demo", "--seed", "1", stdin=typed)
    assert (ran.code, ran.err) == (0, "")
    answers = ran.out.splitlines()
    assert all(q.expected(a) for q, a in zip(demo_module.CHAT, answers, strict=True))


def test_a_prompt_beyond_the_context_is_refused_and_the_chat_goes_on(real: Run) -> None:
    long = "word " * 3000
    ran = real("generate", "-m", "demo", "-p", long)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: The prompt has ")
    ran = real("chat", "-m", "demo", "--seed", "1", stdin=f"{long}\nHello!\n")
    assert (ran.code, ran.out) == (0, "Hello! How can I help you?\n")


def test_no_such_folder_is_a_model_error(real: Run, tmp_path: Path) -> None:
    ran = real("generate", "-m", str(tmp_path / "none"), "-p", "hi")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("error: ")


# ---- inspect ----


def test_inspect_for_people(real: Run) -> None:
    ran = real("inspect", "demo")
    assert (ran.code, ran.err) == (0, "")
    for line in (
        "model       demo",
        "canvas      32 tokens at a time",
        "experts     8, 2 per token",
        "template    present",
        "sampler     48 steps, bound 0.1, temperature 0.8 to 0.4",
        "            from generation_config.json",
        "check       ok, every tensor accounted for",
    ):
        assert line in ran.out.splitlines()
    assert "16.00 bits" in ran.out and "present but not read" in ran.out


def test_inspect_as_json_adds_up(real: Run) -> None:
    content = json.loads(real("inspect", "demo", "--json").out)
    parts = content["parameters"].values()
    assert content["total"]["parameters"] == sum(part["parameters"] for part in parts)
    assert content["total"]["bytes"] == sum(part["bytes"] for part in parts)
    assert content["total"]["bits"] == 16.0
    assert content["active_parameters"] < content["total"]["parameters"]
    assert {stop["id"] for stop in content["stop_tokens"]} == {1, 50, 106}
    size = (resolve("demo") / "model.safetensors").stat().st_size
    tensors = content["files"][0].pop("tensors")
    assert content["files"] == [{"name": "model.safetensors", "bytes": size}]
    assert tensors > content["unread"]["vision"]["tensors"] > 0
    assert content["check"] == {"ok": True, "problem": None}


def test_inspect_uses_the_default_model(real: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.ENVIRONMENT, "demo")
    assert real("inspect").out.startswith("model       demo\n")


def test_inspect_says_what_is_wrong_with_the_files(real: Run, copied: Path) -> None:
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    ran = real("inspect", str(copied))
    assert ran.code == 3
    assert "check       ok" not in ran.out and "canvas      32" in ran.out
    assert ran.err.startswith("error: ") and "model.safetensors" in ran.err
    report = json.loads(real("inspect", str(copied), "--json").out)
    assert report["check"]["ok"] is False and "total" not in report


def test_inspect_refuses_another_models_config(real: Run, copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    config["model_type"] = "gemma4"
    (copied / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ran = real("inspect", str(copied))
    assert (ran.code, ran.out) == (3, "")
    assert "gemma4" in ran.err


# ---- convert ----


def test_convert_generate_inspect_and_default(real: Run, tmp_path: Path) -> None:
    output = tmp_path / "converted"
    ran = real("convert", "demo", "-o", str(output), "--default")
    assert ran.code == 0
    assert ran.out.startswith(f"{output}: ") and ran.out.count("\n") == 1
    assert "is now the default model" in ran.err
    assert settings.configured_model() == str(output)

    content = json.loads(real("inspect", "--json").out)
    assert content["model"] == str(output)
    assert list(content["parameters"]["experts"]["formats"]) == ["4-bit affine, group 64"]
    assert list(content["parameters"]["attention"]["formats"]) == ["8-bit affine, group 64"]
    assert content["total"]["bits"] < 8

    assert QUESTION.expected(real("generate", "-p", QUESTION.prompt, "--seed", "1").out)

    again = real("convert", "demo", "-o", str(output))
    assert again.code == 6 and again.out == ""
    assert again.err.startswith("error: ") and "--force" in again.err
    assert real("convert", "demo", "-o", str(output), "--force", "-q") == Ran(0, "", "")


def test_plain_progress_is_a_few_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    notes = terminal.standard_error(terminal.detect())
    with progress.conversion_progress(terminal.detect(), notes) as report:
        assert report is not None
        for done in range(1, 101):
            report(done * 10**9, 100 * 10**9, "name")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "converted 10.00 GB of 100.00 GB (10 %)"
    assert lines[-1] == "converted 100.00 GB of 100.00 GB (100 %)"


def test_quiet_conversions_have_no_progress() -> None:
    notes = terminal.standard_error(terminal.detect(), quiet=True)
    with progress.conversion_progress(terminal.detect(), notes) as report:
        assert report is None


# ---- demo ----


@pytest.mark.parametrize("args", [(), ("--fast",)])
def test_demo(real: Run, args: tuple[str, ...]) -> None:
    ran = real("demo", *args)
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    questions = (demo_module.FAST if args else demo_module.QUESTIONS) + demo_module.CHAT
    assert ran.out.count("[as expected: ") == len(questions)
    assert f"{len(questions)} answers, " in ran.out
    assert "2 canvases" in ran.out
    assert "not a small DiffusionGemma" in ran.out


def test_demo_fails_when_an_answer_is_wrong(real: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = demo_module.Question(QUESTION.prompt, lambda text: False)
    monkeypatch.setattr(demo_module, "FAST", (wrong,))
    ran = real("demo", "--fast")
    assert ran.code == 1
    assert "[NOT as expected: " in ran.out
    assert ran.err.startswith("error: 1 of 3 answers are not the expected ones.\n")


def test_demo_fails_when_a_part_breaks(real: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlx_diffusiongemma.errors import ModelError

    def fail(*args: Any) -> Any:
        raise ModelError("It is damaged.")

    monkeypatch.setattr(session, "open_runtime", fail)
    ran = real("demo", "--fast")
    assert (ran.code, ran.err) == (3, "error: It is damaged.\n")


def test_an_empty_output_is_not_the_working_folder(real: Callable[..., Ran]) -> None:
    ran = real("convert", "demo", "-o", "")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: The output is empty.")
