"""Which model is used: flag, environment, config file; and writing the config file."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_diffusiongemma.cli import settings
from mlx_diffusiongemma.errors import OutputError, UsageError
from tests.cli.conftest import Ran
from tests.cli.fake_runtime import FakeRuntime


def _write_config(text: str) -> Path:
    path = settings.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_flag_beats_environment_beats_config(
    cli: Callable[..., Ran], runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_config('model = "from-config"\n')
    cli("generate", "-p", "hi")
    monkeypatch.setenv(settings.ENVIRONMENT, "from-environment")
    cli("generate", "-p", "hi")
    cli("generate", "-p", "hi", "-m", "from-flag", "--revision", "r1", "--dtype", "float16")
    assert runtime.opened == [
        ("from-config", None, None),
        ("from-environment", None, None),
        ("from-flag", "r1", "float16"),
    ]


@pytest.mark.parametrize("command", ["generate", "chat", "inspect"])
def test_no_model_names_the_ways_out(
    cli: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
) -> None:
    (tmp_path / "converted").mkdir()
    content = json.dumps({"model_type": "diffusion_gemma"})
    (tmp_path / "converted" / "config.json").write_text(content, encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ran = cli(command, stdin="hi")
    assert (ran.code, ran.out) == (2, "")
    error, hint = ran.err.splitlines()
    assert error == "error: No model is chosen."
    assert "-m demo" in hint and "./converted" in hint and "dgemma convert" in hint
    assert "other" not in hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = ", "is not valid TOML"),
        ("model = 3", "must be a path or a name"),
        ("model = ''", ""),
    ],
)
def test_a_damaged_config_file_is_named(cli: Callable[..., Ran], text: str, said: str) -> None:
    path = _write_config(text)
    ran = cli("generate", "-p", "hi")
    assert ran.code == 2
    assert str(path) in ran.err and said in ran.err


def test_an_empty_model_is_refused(cli: Callable[..., Ran]) -> None:
    assert cli("generate", "-p", "hi", "-m", " ").code == 2


def test_the_default_is_written_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = _write_config('# mine\nmodel = "old"\nother = 1\n[table]\nmodel = "kept"\n')
    model = tmp_path / 'a "quoted" \u00fc'
    assert settings.write_default_model(model) == path
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    assert content == {"model": str(model), "other": 1, "table": {"model": "kept"}}
    assert "# mine" in path.read_text(encoding="utf-8")
    assert settings.configured_model() == str(model)


def test_the_default_is_written_where_there_is_no_folder_yet(tmp_path: Path) -> None:
    settings.write_default_model(tmp_path / "m")
    assert settings.choose_model(None) == str(tmp_path / "m")


def test_a_damaged_config_file_is_not_overwritten(tmp_path: Path) -> None:
    path = _write_config("model = ")
    with pytest.raises(UsageError):
        settings.write_default_model(tmp_path)
    assert path.read_text(encoding="utf-8") == "model = "


def test_an_unwritable_config_folder_is_an_output_error(tmp_path: Path) -> None:
    home = settings.config_path().parent
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("a file in the way", encoding="utf-8")
    with pytest.raises((OutputError, UsageError)):
        settings.write_default_model(tmp_path)


def test_real_paths_are_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert settings.config_path().name == "config.toml"
    assert "mlx-diffusiongemma" in str(settings.config_path())
    assert os.fspath(settings.state_folder())


def test_a_blank_model_from_the_environment_is_refused_by_name(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(settings.ENVIRONMENT, " ")
    ran = cli("generate", "-p", "hi")
    assert (ran.code, settings.ENVIRONMENT in ran.err) == (2, True)


def test_a_home_that_cannot_hold_a_config_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HOME=/dev/null, as services have it."""
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "config.toml"
    monkeypatch.setattr(settings, "config_path", lambda: path)
    assert settings.configured_model() is None
    with pytest.raises(OutputError, match="cannot be written: File exists"):
        settings.write_default_model(tmp_path)


def test_a_folder_whose_name_is_not_utf8_cannot_be_the_default(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="path is not UTF-8"):
        settings.write_default_model(tmp_path / "bad\udcff")


def test_a_deleted_working_folder_holds_no_models(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = cli("generate", "-p", "hi")
    monkeypatch.chdir(tmp_path)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: No model is chosen.")
