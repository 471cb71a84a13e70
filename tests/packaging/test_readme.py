"""The README's commands: every `sh` and `python` block that needs no network is run.

A block that needs the network, a download or a person says so after the language: ```sh network.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.packaging.project import IMPORT_NAME, ROOT, clean_env, run, script_folder

README = ROOT / "README.md"
FENCE = re.compile(r"^```(\w*) ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
# Inside a run, make only says what it would do: its targets run the tests that run this.
MAKE = f'make() {{ command make --dry-run -C {shlex.quote(str(ROOT))} "$@" >/dev/null; }}\n'


class Block(NamedTuple):
    """A fenced block: its language, what else its first line says, and its text."""

    language: str
    note: str
    text: str


def blocks(*languages: str) -> list[Block]:
    """List the README's blocks in these languages."""
    found = [Block(*match.groups()) for match in FENCE.finditer(README.read_text(encoding="utf-8"))]
    return [block for block in found if block.language in languages]


def offline(*languages: str) -> list[Block]:
    """List the blocks that can be run here."""
    return [block for block in blocks(*languages) if not block.note]


def environment() -> dict[str, str]:
    """Put the console scripts of this environment on the path, and cut the hub off."""
    path = f"{script_folder()}{os.pathsep}{os.environ['PATH']}"
    return clean_env(PATH=path, PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="1", COLUMNS="100")


@pytest.mark.parametrize("block", offline("sh"), ids=lambda block: block.text.splitlines()[0])
def test_shell_block_runs(block: Block, tmp_path: Path) -> None:
    """Each line succeeds, in a folder that is not the checkout."""
    run("bash", "-euo", "pipefail", "-c", MAKE + block.text, cwd=tmp_path, env=environment())


@pytest.mark.parametrize("block", offline("python"), ids=lambda block: block.text.splitlines()[0])
def test_python_block_runs(block: Block, tmp_path: Path) -> None:
    """The example can be pasted into a file and run."""
    run(sys.executable, "-c", block.text, cwd=tmp_path, env=environment())


def test_blocks_say_what_they_need() -> None:
    """No block hides from the tests behind another spelling."""
    assert offline("sh")
    assert {block.note for block in blocks("sh", "python")} <= {"", "network"}
    assert not blocks("bash", "shell", "console", "zsh", "py")


def test_links_to_files_exist() -> None:
    """Every relative link leads to a file of the repository."""
    targets = [t for t in LINK.findall(README.read_text(encoding="utf-8")) if "://" not in t]
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_layout_names_what_is_there() -> None:
    """The layout block lists folders that exist, and every room of the library is in it."""
    text = README.read_text(encoding="utf-8").split("## Layout", 1)[1]
    match = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert match
    listed = {line.split()[0].rstrip("/") for line in match[1].splitlines() if line.strip()}
    rooms = {p.name for p in (ROOT / IMPORT_NAME).iterdir() if p.is_dir() and not p.is_symlink()}
    assert rooms - {"__pycache__"} <= listed
    for name in listed:
        assert any((base / name).exists() for base in (ROOT, ROOT / IMPORT_NAME)), name
