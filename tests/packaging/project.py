"""What the packaging tests share: the checkout's files, a copy of them, what it declares."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
IMPORT_NAME = "mlx_diffusiongemma"
COMMANDS = ("mlx-diffusiongemma", "dgemma")
# Folders that a checkout without git may hold besides the project's own files.
LEFT_OVERS = {"__pycache__", "build", "dist", "node_modules", "htmlcov"}


@cache
def pyproject() -> dict[str, Any]:
    """Give pyproject.toml as data."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def version() -> str:
    """Give the version, which stands in one place: the package's __init__.py."""
    text = (ROOT / IMPORT_NAME / "__init__.py").read_text(encoding="utf-8")
    [found] = re.findall(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    return str(found)


@cache
def project_files() -> tuple[Path, ...]:
    """List the project's files and links, relative to the root (git's view, else a walk)."""
    if (ROOT / ".git").exists():
        listing = run(
            "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
        )
        paths = {Path(name) for name in listing.stdout.split("\0") if name}
        return tuple(sorted(path for path in paths if os.path.lexists(ROOT / path)))
    return tuple(sorted(path.relative_to(ROOT) for path in _walk(ROOT)))


def _walk(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        left_over = entry.name in LEFT_OVERS or entry.name.endswith(".egg-info")
        hidden = entry.name.startswith(".") and entry.name not in (".ci", ".github", ".gitignore")
        if left_over or hidden:
            continue
        if entry.is_symlink() or not entry.is_dir():
            yield entry
        else:
            yield from _walk(entry)


def copy_project(target: Path) -> Path:
    """Copy the project's files, links as links, to a folder that does not exist yet."""
    for path in project_files():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target / path, follow_symlinks=False)
    return target


def package_folders() -> dict[str, Path]:
    """Map every declared package to the folder its files lie in."""
    setuptools = pyproject()["tool"]["setuptools"]
    bases: dict[str, str] = setuptools["package-dir"]
    folders = {}
    for name in setuptools["packages"]:
        base = max((b for b in bases if name == b or name.startswith(b + ".")), key=len)
        inside = name.removeprefix(base).removeprefix(".").replace(".", "/")
        folders[name] = Path(bases[base]) / inside
    return folders


def source_files(*folders: str) -> list[Path]:
    """List the .py files under these top-level folders (no link is followed)."""
    return [path for path in project_files() if path.suffix == ".py" and path.parts[0] in folders]


def imported_modules(path: Path) -> set[str]:
    """Collect the top-level names a file imports, wherever in the file the import stands."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


def normal(name: str) -> str:
    """Spell a distribution's name the one way that compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """Name the distributions the project declares, for any platform, with these extras."""
    project = pyproject()["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return {normal(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in lines}


@cache
def providers() -> dict[str, set[str]]:
    """Map each importable top-level name to the installed distributions that bring it."""
    found = metadata.packages_distributions()
    return {module: {normal(name) for name in names} for module, names in found.items()}


def run(
    *command: str | Path, cwd: Path, env: dict[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command that has to succeed, and show what it printed when it does not."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def clean_env(**changes: str) -> dict[str, str]:
    """Copy the environment without what points Python at another place."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return env | changes


def script_folder() -> Path:
    """Give the folder of the console scripts that were installed beside this Python."""
    return Path(sys.executable).parent
