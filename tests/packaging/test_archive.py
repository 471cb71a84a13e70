"""A zip or tar of the repository, as code hosts offer it: links survive, nothing is installed."""

from __future__ import annotations

import os
import stat
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.project import IMPORT_NAME, clean_env, copy_project, run

LINKS = {f"{IMPORT_NAME}/cli": "../cli", f"{IMPORT_NAME}/convert": "../convert"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commit a copy of the checkout, with settings that owe nothing to this machine's git."""
    folder = copy_project(tmp_path_factory.mktemp("repository") / "copy")
    git = (
        "git",
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "commit.gpgsign=false",
    )
    run("git", "init", "--quiet", cwd=folder)
    run(*git, "add", "--all", cwd=folder)
    run(*git, "commit", "--quiet", "--no-verify", "--message", "copy", cwd=folder)
    return folder


def test_links_are_relative(repository: Path) -> None:
    """The two links work wherever the checkout lies."""
    for link, target in LINKS.items():
        assert os.readlink(repository / link) == target


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_unpacked_archive_runs_uninstalled(repository: Path, tmp_path: Path, form: str) -> None:
    """The commands start from an unpacked archive with nothing installed from it."""
    archive = tmp_path / f"archive.{form}"
    run("git", "archive", f"--format={form}", "--output", archive, "HEAD", cwd=repository)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    if form == "tar":
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="tar")
    else:
        unzip(archive, unpacked)
    code = (
        f"import {IMPORT_NAME}.cli.app as app, {IMPORT_NAME}.convert as c, sys; "
        "print(app.__file__, c.__file__, sep='\\n'); sys.argv = ['dgemma', '--help']; app.main()"
    )
    told = run(sys.executable, "-c", code, cwd=unpacked, env=clean_env()).stdout
    assert all(Path(line).is_relative_to(unpacked) for line in told.splitlines()[:2])
    assert "generate" in told


def unzip(archive: Path, target: Path) -> None:
    """Unpack as `unzip` and macOS do: Python's own zipfile writes links as plain files."""
    with zipfile.ZipFile(archive) as file:
        for entry in file.infolist():
            if stat.S_ISLNK(entry.external_attr >> 16):
                (target / entry.filename).symlink_to(file.read(entry).decode())
            else:
                file.extract(entry, target)
