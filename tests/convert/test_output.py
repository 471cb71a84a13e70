"""The output folder: what is refused, what `force` replaces, and what a failure leaves."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.convert import convert_checkpoint, converter
from mlx_diffusiongemma.convert.output import MARKER, partial_folder
from mlx_diffusiongemma.convert.source import SourceModel, open_source
from mlx_diffusiongemma.errors import DiffusionGemmaError, ModelError, OutputError, UsageError
from tests.convert.folders import fingerprint, read_json, set_json, write_source


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(
    source: Path, output: Path, words: str, *, force: bool = True, exception: type = OutputError
) -> None:
    """The conversion is refused in one sentence, and the source is as it was."""
    before = fingerprint(source)
    with pytest.raises(exception, match=words) as caught:
        convert_checkpoint(source, output, force=force)
    assert isinstance(caught.value, DiffusionGemmaError)
    assert caught.value.message.endswith(".") and "\n" not in caught.value.message
    assert fingerprint(source) == before


def test_second_conversion_to_one_path_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_checkpoint(source, out)
    before = fingerprint(out)
    refused(source, out, "exists", force=False)
    assert fingerprint(out) == before
    assert names(tmp_path) == ["out", "source"]


def test_force_replaces_an_older_model(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_checkpoint(source, out, max_shard_bytes=50_000)
    (out / "notes.txt").write_text("old")
    set_json(source / "config.json", canvas_length=24)
    convert_checkpoint(source, out, force=True)
    assert read_config(out).canvas_length == 24
    assert [path.name for path in out.glob("model*")] == ["model.safetensors"]
    assert not (out / "notes.txt").exists()
    assert names(tmp_path) == ["out", "source"]


def test_force_fills_an_empty_folder(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    refused(source, tmp_path / "out", "exists", force=False)
    convert_checkpoint(source, tmp_path / "out", force=True)
    assert (tmp_path / "out" / "config.json").exists()


def test_force_spares_what_is_not_a_model(source: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "config.json").write_text("{}")
    refused(source, tmp_path / "thesis", "something else than a model")
    (tmp_path / "file").write_text("mine")
    refused(source, tmp_path / "file", "not a folder")
    assert names(tmp_path / "thesis") == ["config.json"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failure_with_force_keeps_the_old_model(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_checkpoint(source, out)
    before = fingerprint(out)

    def stop(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(source, out, force=True, progress=stop)
    assert fingerprint(out) == before
    assert names(tmp_path) == ["out", "source"]


def test_left_over_of_an_interrupted_replacement_is_told(source: Path, tmp_path: Path) -> None:
    convert_checkpoint(source, tmp_path / "out")
    (tmp_path / "out.replaced").mkdir()
    refused(source, tmp_path / "out", r"out\.replaced.*in the way")


def test_output_may_not_be_the_source(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "up").symlink_to(tmp_path)
    for output in (
        source,
        source / "out",
        source / "deep" / "out",
        source / ".." / "source",
        tmp_path / "link",
        tmp_path / "link" / "out",
        tmp_path / "links" / "up" / "source",
    ):
        for force in (True, False):
            refused(source, output, "lie in the source|exists", force=force)
        refused(source, output, "lie in the source")
    refused(tmp_path / "link", source, "lie in the source")
    refused(tmp_path / "link", source / "out", "lie in the source")


def test_output_may_not_hold_the_source(tmp_path: Path) -> None:
    outer = write_source(tmp_path / "outer")
    inner = write_source(outer / "inner")
    refused(inner, outer, "holds the source")
    assert (inner / "config.json").exists()


def test_the_root_folder_is_no_output(source: Path) -> None:
    refused(source, Path("/"), "holds the source")
    refused(source, Path("/"), "holds the source", force=False)


def test_output_may_not_hold_files_the_source_links_to(tmp_path: Path) -> None:
    """A hub cache's snapshot: its weights are links into a folder beside it."""
    blobs = write_source(tmp_path / "repo" / "blobs")
    snapshot = tmp_path / "repo" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    refused(snapshot, blobs, "holds the source")


def test_partial_folder_may_not_be_the_source(tmp_path: Path) -> None:
    """The source is called out.partial, the output out."""
    for ending in (".partial", ".replaced"):
        source = write_source(tmp_path / f"out{ending}")
        (source / MARKER).touch()
        refused(source, tmp_path / "out", "lie in the source")


def test_partial_folder_of_a_killed_run_is_replaced(source: Path, tmp_path: Path) -> None:
    partial = tmp_path / "out.partial"
    partial.mkdir()
    (partial / MARKER).touch()
    (partial / "model.safetensors").write_bytes(b"half")
    convert_checkpoint(source, tmp_path / "out")
    assert names(tmp_path) == ["out", "source"]
    assert MARKER not in names(tmp_path / "out")


def test_partial_folder_of_somebody_else_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "mine").write_text("mine")
    refused(source, tmp_path / "out", "in the way")
    assert names(tmp_path / "out.partial") == ["mine"]
    shutil.rmtree(tmp_path / "out.partial")
    (tmp_path / "out.partial").symlink_to(tmp_path / "nowhere")
    refused(source, tmp_path / "out", "in the way")


def test_two_conversions_to_one_path_do_not_meet(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    with open(tmp_path / "out.partial" / MARKER, "w") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        refused(source, tmp_path / "out", "Another conversion")
    assert names(tmp_path / "out.partial") == [MARKER]


def test_a_conversion_that_came_first_is_not_replaced(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw that there is nothing; the other one was quicker."""
    out, real = tmp_path / "out", open_source

    def slowly(folder: Path) -> SourceModel:
        model = real(folder)
        out.mkdir()
        (out / "config.json").write_text("{}")
        return model

    monkeypatch.setattr(converter, "open_source", slowly)
    refused(source, out, "exists", force=False)
    assert names(out) == ["config.json"]
    assert names(tmp_path) == ["out", "source"]


def test_the_partial_folder_appears_marked_and_locked(tmp_path: Path) -> None:
    """Nobody can take it for a stale one, and what another made meanwhile is left to it."""
    with partial_folder(tmp_path / "out") as partial:
        assert names(tmp_path) == ["out.partial"]
        with open(partial / MARKER) as marker, pytest.raises(BlockingIOError):
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(ZeroDivisionError), partial_folder(tmp_path / "out") as partial:
        shutil.rmtree(partial)
        partial.mkdir()
        (partial / "another's").touch()
        raise ZeroDivisionError
    assert names(tmp_path) == ["out.partial"]
    assert names(tmp_path / "out.partial") == ["another's"]


def test_a_clean_up_that_is_stopped_is_finished_by_the_next_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C twice: what is left still carries the mark of a conversion."""

    def stopped(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        monkeypatch.context() as patch,
        partial_folder(tmp_path / "out") as partial,
    ):
        (partial / "model.safetensors").touch()
        patch.setattr(shutil, "rmtree", stopped)
        raise KeyboardInterrupt
    assert names(tmp_path / "out.partial") == [MARKER]
    convert_checkpoint(source, tmp_path / "out")
    assert names(tmp_path) == ["out", "source"]


@pytest.mark.parametrize("given", [("", "out"), ("source", ""), ("source", " ")])
def test_empty_names_are_no_folders(given: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="is empty"):
        convert_checkpoint(*given)


def test_a_deleted_working_folder_is_told(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    refused(source, Path("out"), "No such file or directory")
    monkeypatch.chdir(tmp_path)


def test_missing_parents_are_made(source: Path, tmp_path: Path) -> None:
    convert_checkpoint(source, tmp_path / "a" / "b" / "out")
    assert names(tmp_path / "a" / "b") == ["out"]


def test_unwritable_parent_is_an_output_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    refused(source, tmp_path / "file" / "out", "is not a folder")

    def denied(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", denied)
    refused(source, tmp_path / "out", "Permission denied")


def test_too_little_space_is_told_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 100_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    refused(source, tmp_path / "out", r"needs 0\.24 MB.*0\.10 MB free")
    assert names(tmp_path) == ["source"]


def full(*args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("point", ["ShardWriter._put", "ShardWriter.write", "sync", "write_file"])
def test_a_disk_that_fills_up_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(f"mlx_diffusiongemma.convert.writer.{point}", full)
    if point == "write_file":
        monkeypatch.setattr("mlx_diffusiongemma.convert.converter.write_file", full)
    refused(source, tmp_path / "out", "disk is full")
    assert names(tmp_path) == ["source"]


def test_a_rename_that_fails_puts_the_old_model_back(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    convert_checkpoint(source, out)
    before = fingerprint(out)
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if path.name == "out.partial":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    refused(source, out, "Input/output error")
    assert fingerprint(out) == before
    assert names(tmp_path) == ["out", "source"]


def damage_config(source: Path) -> None:
    set_json(source / "config.json", canvas_length=-1)


def damage_weights(source: Path) -> None:
    data = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(data[:-100])


def damage_tokenizer(source: Path) -> None:
    (source / "tokenizer_config.json").write_text("{")


@pytest.mark.parametrize("damage", [damage_config, damage_weights, damage_tokenizer])
def test_a_damaged_source_leaves_nothing(
    source: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(source)
    refused(source, tmp_path / "out", ".", exception=ModelError)
    assert names(tmp_path) == ["source"]


def test_a_source_that_shrinks_while_it_is_read(source: Path, tmp_path: Path) -> None:
    def shrink(done: int, total: int, name: str) -> None:
        os.truncate(source / "model.safetensors", 20_000)

    with pytest.raises(ModelError, match=r"model\.safetensors"):
        convert_checkpoint(source, tmp_path / "out", progress=shrink)
    assert names(tmp_path) == ["source"]


def test_report_and_progress_add_up(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    report = convert_checkpoint(
        source, tmp_path / "out", progress=lambda *step: seen.append(step), max_shard_bytes=60_000
    )
    assert [step[0] for step in seen] == sorted(step[0] for step in seen)
    assert seen[-1][0] == seen[-1][1] == report.bytes_in
    assert "model.decoder.embed_tokens" in {step[2] for step in seen}
    index = read_json(tmp_path / "out" / "model.safetensors.index.json")
    assert report.bytes_out == index["metadata"]["total_size"]
    total = sum(report.parameters.values())
    assert report.bytes_in == 2 * total
    assert report.bits_per_weight == pytest.approx(8 * report.bytes_out / total)
    assert report.parameters["experts"] == 3 * 4 * (128 * 64 + 64 * 64)
    assert report.modules_by_bits == {8: 1 + 11 + 9 + 3, 4: 6 + 3}
    assert report.seconds > 0 and report.recipe == "experts4"
    assert (report.source, report.output) == (source, tmp_path / "out")
    assert set(report.files) == set(names(tmp_path / "out"))
