"""A scripted runtime behind every command, a clean environment, and ways to run the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mlx_diffusiongemma.cli import session, settings
from mlx_diffusiongemma.cli.program import app
from tests.cli.fake_runtime import Answer, FakeRuntime

ROOT = Path(__file__).parents[2]
LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No model from outside, config and state in a folder of the test's own."""
    for name in (settings.ENVIRONMENT, "NO_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    monkeypatch.setattr(settings, "config_path", lambda: home / "config.toml")
    monkeypatch.setattr(settings, "state_folder", lambda: home / "state")
    return home


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """The runtime every command opens; its `answers` and `opened` are the test's to use."""
    fake = FakeRuntime()

    def open_runtime(model: str, revision: str | None, dtype: str | None) -> Any:
        fake.opened.append((model, revision, dtype))
        return fake

    monkeypatch.setattr(session, "open_runtime", open_runtime)
    return fake


@pytest.fixture
def cli(runtime: FakeRuntime) -> Callable[..., Ran]:
    """Runs a command in this process: cli("generate", "-p", "hi", stdin="...")."""

    def run(*args: str, stdin: str | bytes = "") -> Ran:
        result = CliRunner().invoke(app, list(args), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


def environment(home: Path, **extra: str) -> dict[str, str]:
    """The environment of a process of its own: nothing of the user's config gets in."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_PRELOAD") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
        **extra,
    }


def command(answers: list[dict[str, Any]], *args: str) -> list[str]:
    """The command line of the program on a scripted runtime."""
    return [sys.executable, str(LAUNCHER), json.dumps(answers), *args]


def run_process(
    answers: list[dict[str, Any]],
    *args: str,
    home: Path,
    stdin: bytes | int = b"",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Runs the program in a process of its own with both outputs in pipes."""
    given: dict[str, Any] = {"stdin": stdin} if isinstance(stdin, int) else {"input": stdin}
    return subprocess.run(
        command(answers, *args),
        capture_output=True,
        timeout=60,
        env=environment(home, **(env or {})),
        check=False,
        **given,
    )


__all__ = ["Answer", "FakeRuntime", "Ran", "command", "environment", "run_process"]
