"""The source archive and the wheel built from it: what is inside, and that its commands start."""

from __future__ import annotations

import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from tests.packaging.project import (
    COMMANDS,
    IMPORT_NAME,
    clean_env,
    copy_project,
    package_folders,
    project_files,
    run,
    version,
)

# Files of a package that are not code and have to travel with it.
DATA = {".metal", ".safetensors", ".json", ".jinja", ".md", ".model", ".typed"}


class Built(NamedTuple):
    """What one build made, and the folder of its sources."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the sdist and from that the wheel, offline, in a copy of the checkout."""
    source = copy_project(tmp_path_factory.mktemp("source") / "copy")
    output = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", output, ".", cwd=source)
    [sdist] = output.glob("*.tar.gz")
    [wheel] = output.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def names(built: Built) -> set[str]:
    """List the wheel's files."""
    with zipfile.ZipFile(built.wheel) as archive:
        return set(archive.namelist())


def wheel_paths() -> dict[str, Path]:
    """Map every path the wheel should have to the checkout's file it comes from."""
    expected = {}
    for package, folder in package_folders().items():
        for path in project_files():
            wanted = path.suffix == ".py" or path.suffix in DATA
            if path.parent == folder and wanted:
                expected[f"{package.replace('.', '/')}/{path.name}"] = path
    return expected


def test_one_top_level_name(names: set[str]) -> None:
    """No top-level cli or convert: another package's would overwrite ours without a word."""
    tops = {PurePosixPath(name).parts[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {IMPORT_NAME}


def test_every_source_and_data_file_is_inside(names: set[str]) -> None:
    """Nothing that a package folder holds is left behind, and nothing else comes along."""
    packed = {name for name in names if name.startswith(f"{IMPORT_NAME}/")}
    assert packed == set(wheel_paths())
    assert f"{IMPORT_NAME}/py.typed" in packed
    assert f"{IMPORT_NAME}/cli/app.py" in packed


def test_demo_model_is_inside(names: set[str]) -> None:
    """The bundled model travels whole: weights, config, tokenizer, template."""
    demo = {PurePosixPath(name).name for name in names if name.startswith(f"{IMPORT_NAME}/demo/")}
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= demo
    assert any(name.endswith(".safetensors") for name in demo)
    assert any(name.endswith(".jinja") for name in demo)


def test_metadata(built: Built) -> None:
    """Name, version, licence and both commands stand in the wheel's metadata."""
    with zipfile.ZipFile(built.wheel) as archive:
        [info] = {
            PurePosixPath(n).parts[0] for n in archive.namelist() if ".dist-info/METADATA" in n
        }
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    for command in COMMANDS:
        assert f"{command} = {IMPORT_NAME}.cli.app:main" in scripts


def test_sdist_holds_the_same_code(built: Built) -> None:
    """The wheel is built from the sdist, so the sdist has every file of the wheel."""
    with tarfile.open(built.sdist) as archive:
        inside = {str(PurePosixPath(*PurePosixPath(n).parts[1:])) for n in archive.getnames()}
    assert {str(path) for path in wheel_paths().values()} <= inside
    assert {"pyproject.toml", "README.md", "LICENSE"} <= inside


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone into a fresh environment; its dependencies come from this one's."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", built.wheel, cwd=folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A folder named in a .pth file comes after the environment's own packages, so the wheel wins,
    # and .pth files in there (an editable install's) are not read.
    borrowed = folder / "lib" / version / "site-packages" / "borrowed.pth"
    borrowed.write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_console_scripts_start(installed: Path, command: str, tmp_path: Path) -> None:
    """Both commands answer from a folder that is not the checkout."""
    script = installed / "bin" / command
    told = run(script, "--version", cwd=tmp_path, env=clean_env()).stdout
    assert told.startswith(f"mlx-diffusiongemma {version()} ")
    assert "generate" in run(script, "--help", cwd=tmp_path, env=clean_env()).stdout


def test_installed_code_is_the_wheels(installed: Path, tmp_path: Path) -> None:
    """The rooms, the converter and the commands all come out of the fresh environment."""
    lines = (
        f"import {IMPORT_NAME} as a, {IMPORT_NAME}.convert as b, {IMPORT_NAME}.cli.app as c",
        "for module in (a, b, c): print(module.__file__)",
    )
    python = installed / "bin" / "python"
    told = run(python, "-c", "\n".join(lines), cwd=tmp_path, env=clean_env()).stdout.split()
    assert len(told) == 3
    assert all(Path(line).is_relative_to(installed) for line in told)


def test_top_level_cli_is_not_importable(installed: Path, tmp_path: Path) -> None:
    """`import cli` and `import convert` find nothing of ours."""
    for name in ("cli", "convert"):
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
        done = subprocess.run(
            [installed / "bin" / "python", "-c", code], cwd=tmp_path, env=clean_env()
        )
        assert done.returncode == 1, name


@pytest.mark.slow
def test_wheel_with_what_it_declares(built: Built, tmp_path: Path) -> None:
    """In an environment of its own, with the declared dependencies only, the demo runs."""
    folder = tmp_path / "venv"
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
    constraints = Path(__file__).parents[2] / "constraints.txt"
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "install", "-qq", "--disable-pip-version-check")
    run(*pip, "-c", constraints, built.wheel, cwd=tmp_path, env=clean_env(), timeout=900)
    run(python, "-m", "pip", "check", cwd=tmp_path, env=clean_env())
    for arguments in (["--version"], ["--help"], ["demo"]):
        run(folder / "bin" / "dgemma", *arguments, cwd=tmp_path, env=clean_env(), timeout=600)
