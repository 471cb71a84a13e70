"""Which model a command uses: flag, then MLX_DIFFUSIONGEMMA_MODEL, then the config file."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

from mlx_diffusiongemma.errors import OutputError, UsageError

APP = "mlx-diffusiongemma"
ENVIRONMENT = "MLX_DIFFUSIONGEMMA_MODEL"
_MODEL_LINE = re.compile(r"""\s*(model|"model"|'model')\s*=""")


def config_path() -> Path:
    """The config file: `config.toml` in the user's config folder for this program."""
    import platformdirs

    return Path(platformdirs.user_config_dir(APP, appauthor=False)) / "config.toml"


def state_folder() -> Path:
    """Where chat keeps the history of typed lines."""
    import platformdirs

    return Path(platformdirs.user_state_dir(APP, appauthor=False))


def configured_model() -> str | None:
    """The config file's `model`, or None when there is no file or no such key."""
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The config file {path} cannot be read: {_reason(error)}.",
            "Correct it or delete it, or choose a model with --model.",
        ) from error
    try:
        value = tomllib.loads(text).get("model")
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"The config file {path} is not valid TOML: {error}.", "Correct it or delete it."
        ) from error
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"model in {path} must be a path or a name in quotes, not {value!r}.")
    return value


def choose_model(flag: str | None) -> str:
    """The model to use. UsageError with a hint when nothing names one."""
    if flag is not None:
        if not flag.strip():
            raise UsageError("--model is empty.", "Give a folder, a Hugging Face name, or demo.")
        return flag
    chosen = os.environ.get(ENVIRONMENT) or configured_model()
    if chosen:
        if not chosen.strip():
            raise UsageError(
                f"The model name in {ENVIRONMENT} or the config file is blank.",
                "Correct it, or choose a model with --model.",
            )
        return chosen
    found = converted_models(Path())
    hint = "Use -m demo for the bundled model"
    if found:
        hint += f", -m with a model found here ({', '.join(found)})"
    hint += ", or convert one and keep it as the default: dgemma convert SRC -o DIR --default."
    raise UsageError("No model is chosen.", hint)


def converted_models(folder: Path, limit: int = 5) -> list[str]:
    """Names of model folders right below `folder`, judged by the model type they declare."""
    found: list[str] = []
    try:
        candidates = sorted(folder.iterdir())[:500]
    except OSError:
        return found
    for candidate in candidates:
        if len(found) < limit and _declares_our_model(candidate / "config.json"):
            found.append(f"./{candidate.name}")
    return found


def _declares_our_model(config: Path) -> bool:
    try:
        if config.stat().st_size > 1_000_000:
            return False
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("model_type") == "diffusion_gemma"


def write_default_model(model: Path) -> Path:
    """Makes `model` the default; returns the config file. Other keys in it are kept."""
    path = config_path()
    configured_model()  # a damaged file is reported, not overwritten
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        top = next((i for i, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
        kept = [line for line in lines[:top] if not _MODEL_LINE.match(line)] + lines[top:]
        value = json.dumps(str(model.resolve()), ensure_ascii=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text("\n".join([f"model = {value}", *kept]) + "\n", encoding="utf-8")
        os.replace(partial, path)
    except (OSError, UnicodeError) as error:
        raise OutputError(
            f"The config file {path} cannot be written: {_reason(error)}.",
            "Choose the model with --model or MLX_DIFFUSIONGEMMA_MODEL instead.",
        ) from error
    return path


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeEncodeError):
        return "the model's path is not UTF-8"
    return "it is not UTF-8 text"
