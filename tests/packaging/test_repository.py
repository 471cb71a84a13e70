"""The repository itself: what may not be in a file, sizes, the package map, the pins."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from tests.packaging.project import (
    IMPORT_NAME,
    ROOT,
    declared,
    normal,
    package_folders,
    project_files,
    pyproject,
    source_files,
)

TEXT = {"", ".py", ".md", ".toml", ".txt", ".yml", ".json", ".jinja", ".metal", ".sh", ".cfg"}
LINES_A_FILE = 400
LINES_A_FUNCTION = 60

# Written with a class around one letter, so that this file does not find itself.
FORBIDDEN = {
    "somebody's own folder": r"(?<![\w.~/])/(?:[h]ome|[U]sers|[r]oot|[w]ork)/\w",
    "a package index": r"[p]ypi\.org|[p]ythonhosted|[r]egistry\.npmjs|[d]ownload\.pytorch",
    "a private network": r"(?<![\d.])(?:1[0]\.\d+|19[2]\.168|17[2]\.(?:1[6-9]|2\d))\.\d+\.\d+",
    "a key": r"\b[h]f_[A-Za-z0-9]{30,}|\b[g]h[pous]_[A-Za-z0-9]{30,}|[B]EGIN [A-Z ]*PRIVATE KEY",
}


def text_files() -> list[Path]:
    """List the project's text files, links left out."""
    return [
        path
        for path in project_files()
        if path.suffix in TEXT and not (ROOT / path).is_symlink() and (ROOT / path).is_file()
    ]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    """No committed file names a machine, an index or a secret."""
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in text_files()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_files_and_functions_stay_short() -> None:
    """One idea a file: nobody has to read a thousand lines to change one."""
    found = []
    for path in source_files(IMPORT_NAME, "convert", "cli", "tests"):
        text = (ROOT / path).read_text(encoding="utf-8")
        if len(text.splitlines()) > LINES_A_FILE:
            found.append(f"{path}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # From the first statement on: a command's options are a table, not a procedure.
                length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if length > LINES_A_FUNCTION:
                    found.append(f"{path}:{node.lineno} {node.name}: {length} lines")
    assert found == []


def test_every_file_says_what_it_is() -> None:
    """A module begins with a docstring."""
    files = source_files(IMPORT_NAME, "convert", "cli", "tests")
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in files}
    assert [path for path, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []


def test_package_map_is_complete() -> None:
    """Every folder with code in it is a declared package: a forgotten one is not shipped."""
    with_code = {path.parent for path in source_files(IMPORT_NAME, "convert", "cli")}
    assert with_code == set(package_folders().values())


def test_commands_and_converter_are_links() -> None:
    """Editors and an uninstalled checkout see both folders through relative links."""
    for name in ("cli", "convert"):
        link = ROOT / IMPORT_NAME / name
        assert link.is_symlink()
        assert os.readlink(link) == f"../{name}"


def pins() -> dict[str, str]:
    """Read constraints.txt: names, one exact version each, and at most a marker."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(
            r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.]*)(; sys_platform == '(?:linux|darwin)')?", line
        )
        assert match, line
        assert normal(match[1]) not in found, line
        found[normal(match[1])] = match[2]
    return found


def test_pins_cover_what_is_declared() -> None:
    """Everything the project asks for is installed in a version that was tested."""
    assert declared("dev", "reference") - set(pins()) == set()
    assert pins()["mlx"] == pins()["mlx-cpu"] == pins()["mlx-metal"]
    for line in pyproject()["project"]["optional-dependencies"]["reference"]:
        name, _, version = line.partition("==")
        assert pins()[normal(name)] == version


def test_makefile_is_what_ci_and_the_readme_run() -> None:
    """The commands people are told to run are the ones that are checked."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in ("test", "demo", "test-reference"):
        assert re.search(rf"^step make {target}$", script, re.MULTILINE)
        assert re.search(rf"\bmake {target}\b", readme)
    assert not (ROOT / "uv.lock").exists() or Path("uv.lock") not in project_files()
