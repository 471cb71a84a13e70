"""Usage errors, help and version: one sentence, a hint, exit code 2, and no heavy imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_diffusiongemma.cli.errors import REFUSED
from tests.cli.conftest import Ran, environment
from tests.cli.fake_runtime import FakeRuntime

COMMANDS = ("generate", "chat", "convert", "inspect", "demo")


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_what_cannot_be_honoured_is_refused_by_name(
    cli: Callable[..., Ran], runtime: FakeRuntime, option: str
) -> None:
    ran = cli("generate", "-m", "x", "-p", "hi", f"--{option}", "5")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1
    assert f"--{option}" in ran.err
    assert not runtime.opened


def test_a_refused_name_is_fine_as_a_prompt(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    assert cli("generate", "-m", "x", "-p", "--top-k").code == 0
    assert runtime.calls[0][0] == "--top-k"


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["generate", "--sed", "1"], "There is no option --sed.", "Did you mean --seed?"),
        (["generate", "--verbose"], "There is no option --verbose.", "Did you mean --stats?"),
        (
            ["generate", "--max-new-tokens", "5"],
            "There is no option --max-new-tokens.",
            "Did you mean --max-tokens?",
        ),
        (
            ["generate", "hello"],
            "Got unexpected extra argument(s) (hello).",
            "The prompt goes after -p, in quotes.",
        ),
        (["genrate"], "No such command 'genrate'.", "Did you mean 'generate'?"),
        (["convert", "x"], "Missing option '--output' / '-o'.", "--help shows what there is."),
        (["convert"], "Missing argument 'SRC'.", "--help shows what there is."),
    ],
)
def test_parser_errors_read_like_ours(
    cli: Callable[..., Ran], args: list[str], error: str, hint: str
) -> None:
    ran = cli(*args)
    assert (ran.code, ran.out) == (2, "")
    first, second = ran.err.splitlines()
    assert first == f"error: {error}"
    assert second.startswith("hint: ") and second.endswith(hint)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("--max-tokens", "0", "--max-tokens must be at least 1, not 0."),
        ("--steps", "0", "--steps must be at least 1, not 0."),
        ("--temp", "-1", "--temp must be at least 0, not -1.0."),
        ("--temperature", "nan", "--temp must be a finite number, not nan."),
        ("--temp", "inf", "--temp must be a finite number, not inf."),
        ("--seed", "-1", "--seed must be at least 0, not -1."),
        ("--seed", str(2**64), f"--seed must be at most {2**64 - 1}, not {2**64}."),
        ("--entropy-bound", "0", "--entropy-bound must be greater than 0."),
        ("--confidence", "-0.1", "--confidence must be at least 0, not -0.1."),
        ("--stability", "-1", "--stability must be at least 0, not -1."),
        ("--stability", "9" * 30, f"--stability must be at most {2**31 - 1}, not {'9' * 30}."),
        ("--steps", str(2**31), f"--steps must be at most {2**31 - 1}, not {2**31}."),
        ("--temp", "1e38", "--temp must be at most 1e+30, not 1e+38."),
        ("--entropy-bound", "1e300", "--entropy-bound must be at most 1e+30, not 1e+300."),
        ("--t-min", "-0.5", "--t-min must be at least 0, not -0.5."),
        ("--sampler", "ddim", "--sampler must be one of entropy-bound, confidence, not 'ddim'."),
        ("--dtype", "int8", "--dtype must be one of float32, float16, bfloat16, not 'int8'."),
        ("--view", "3d", "--view must be one of auto, live, plain, off, not '3d'."),
    ],
)
@pytest.mark.parametrize("command", ["generate", "chat"])
def test_impossible_values_are_refused_before_loading(
    cli: Callable[..., Ran],
    runtime: FakeRuntime,
    command: str,
    option: str,
    value: str,
    error: str,
) -> None:
    ran = cli(command, "-m", "x", option, value, stdin="hi")
    assert (ran.code, ran.out, ran.err) == (2, "", f"error: {error}\n")
    assert not runtime.opened


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--t-min", "0.8", "--t-max", "0.4"], "--t-max (0.4) is below --t-min (0.8)."),
        (
            ["--sampler", "confidence", "--entropy-bound", "1"],
            "--entropy-bound means nothing to --sampler confidence.",
        ),
        (["--raw", "--system-prompt", "s"], "--raw takes no --system-prompt"),
        (["--raw", "--thinking"], "--raw takes no --thinking"),
    ],
)
def test_options_that_contradict_each_other(
    cli: Callable[..., Ran], runtime: FakeRuntime, args: list[str], error: str
) -> None:
    ran = cli("generate", "-m", "x", "-p", "hi", *args)
    assert ran.code == 2
    assert ran.err.startswith(f"error: {error}")
    assert not runtime.opened


def test_an_unreadable_number_is_named(cli: Callable[..., Ran]) -> None:
    ran = cli("generate", "--max-tokens", "many")
    assert ran.code == 2
    assert ran.err.startswith("error: Invalid value for '--max-tokens': ")


def test_a_huge_number_does_not_crash(cli: Callable[..., Ran]) -> None:
    assert cli("generate", "-m", "x", "-p", "hi", "--max-tokens", "9" * 400).code in (0, 2)


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help_goes_to_standard_output(cli: Callable[..., Ran], args: list[str]) -> None:
    ran = cli(*args)
    assert (ran.code, ran.err) == (0, "")
    assert "Usage:" in ran.out
    assert "Examples:" in ran.out or "Start here:" in ran.out
    assert "\x1b" not in ran.out


def test_help_names_every_option_of_generate(cli: Callable[..., Ran]) -> None:
    shown = cli("generate", "--help").out
    names = (
        "m, model p, prompt revision system-prompt max-tokens temp temperature seed steps sampler"
        " entropy-bound t-min t-max stability confidence thinking no-thinking show-thinking raw"
        " stats json q quiet stream no-stream dtype view debug"
    )
    for name in names.split(" "):
        assert f"-{name}" in shown


def test_version_names_both_packages(cli: Callable[..., Ran]) -> None:
    from importlib.metadata import version

    from mlx_diffusiongemma import __version__

    ran = cli("--version")
    assert ran.code == 0
    assert ran.out == f"mlx-diffusiongemma {__version__} (mlx {version('mlx')})\n"


@pytest.mark.parametrize("args", [["--help"], ["generate", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(tmp_path: Path, args: list[str]) -> None:
    heavy = ("mlx.core", "numpy", "torch", "transformers", "mlx_lm", "rich", "prompt_toolkit")
    code = (
        "import sys; from mlx_diffusiongemma.cli import app\n"
        f"sys.argv = ['dgemma', *{args!r}]\n"
        "try: app.main()\n"
        "except SystemExit as end: assert not end.code\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=True,
    )
    assert ran.stderr.splitlines() == ["[]"]
