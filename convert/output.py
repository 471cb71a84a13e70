"""The output folder: checks before, a partial folder during, one rename at the end.

Until the rename the target is untouched; after a failure the partial folder is gone. What is
written into it is left to the callers.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlx_diffusiongemma.convert.writer import write_file
from mlx_diffusiongemma.errors import OutputError

PARTIAL = ".partial"
REPLACED = ".replaced"
MARKER = ".mlx-diffusiongemma-convert"  # in a partial folder: ours, and locked while in use


def check_existing(target: Path, force: bool) -> None:
    """Raise OutputError when the target exists, unless `force` and it is an older model folder."""
    if not os.path.lexists(target):
        return
    if not force:
        raise OutputError(
            f"The output {str(target)!r} exists.",
            "Choose another path, or replace it with --force.",
        )
    if not target.is_dir():
        raise OutputError(f"The output {str(target)!r} exists and is not a folder.")
    names = {path.name for path in target.iterdir()}
    if names and not ("config.json" in names and any(n.endswith(".safetensors") for n in names)):
        raise OutputError(
            f"The output {str(target)!r} is a folder with something else than a model in it.",
            "Choose another path, or remove the folder yourself.",
        )
    replaced = _beside(target, REPLACED)
    if os.path.lexists(replaced):
        raise OutputError(
            f"{str(replaced)!r} is in the way; an interrupted conversion may have left it.",
            "Move it away, or remove it.",
        )


def check_apart(target: Path, source: Path, files: Iterable[str] = ()) -> None:
    """Raise OutputError when writing the target could touch the source; links are followed.

    The target, and the partial folder beside it, must neither be nor lie in the source folder, nor
    hold it or one of its `files`.
    """
    for path in (target, _beside(target, PARTIAL), _beside(target, REPLACED)):
        if _same_or_inside(path, source):
            raise OutputError(
                f"The output {str(target)!r} would lie in the source folder.",
                "Choose a path outside of it.",
            )
        for kept in (source, *(source / file for file in files)):
            if _same_or_inside(Path(os.path.realpath(kept)), path):
                raise OutputError(
                    f"The output {str(target)!r} holds the source's own files.",
                    "Choose another path.",
                )


def _beside(target: Path, ending: str) -> Path:
    return target.parent / (target.name + ending)


def _same_or_inside(path: Path, folder: Path) -> bool:
    """Whether `path`, which need not exist, is `folder` or lies in it, on this file system."""
    if not folder.exists():
        return False
    chain = (path, *path.parents)
    return any(place.exists() and place.samefile(folder) for place in chain)


def check_space(target: Path, needed: int) -> None:
    """Raise OutputError when the disk of the target has less than `needed` bytes free.

    Also when one of its parents is a file.
    """
    place = next(parent for parent in target.parents if parent.exists())
    if not place.is_dir():
        raise OutputError(f"{str(place)!r} is not a folder.", "Choose another output path.")
    free = shutil.disk_usage(place).free
    if free < needed:
        raise OutputError(
            f"The output needs {_size(needed)}, but the disk has {_size(free)} free.",
            "Free some space, or choose a path on another disk.",
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"


@contextlib.contextmanager
def partial_folder(target: Path) -> Iterator[Path]:
    """A new folder beside `target` that becomes `target` when the block ends without an error.

    Otherwise, also on Ctrl-C, it is removed and `target` is as before. System errors are raised
    as OutputError. A partial folder of a killed conversion is replaced; one that is in use, or
    that no conversion made, is refused.
    """
    partial = _beside(target, PARTIAL)
    # It gets its name when it is marked and locked: another conversion never sees it otherwise.
    unnamed = _beside(target, f"{PARTIAL}-{secrets.token_hex(4)}")
    with as_output_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(partial)
        try:
            unnamed.mkdir()
            ours = os.stat(unnamed)
            write_file(unnamed / MARKER, b"")
            with open(unnamed / MARKER, "rb") as marker:
                fcntl.flock(marker, fcntl.LOCK_EX)
                try:
                    _name(unnamed, partial)
                    yield partial
                    _publish(partial, target)
                except BaseException:
                    if _is_same(partial, ours):
                        _remove(partial)
                    raise
        finally:
            _remove(unnamed)


def _name(unnamed: Path, partial: Path) -> None:
    try:
        unnamed.rename(partial)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        raise _in_use(partial) from None  # by one that came first, a moment ago


def _is_same(path: Path, known: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), known)
    except OSError:
        return False


def _remove(folder: Path) -> None:
    """Remove a folder of ours, its marker last: so what a second Ctrl-C leaves is known as ours."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name != MARKER:
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _in_use(partial: Path) -> OutputError:
    return OutputError(
        f"Another conversion is writing {str(partial)!r}.",
        "Wait until it has finished, or choose another output path.",
    )


def _remove_stale(partial: Path) -> None:
    if not os.path.lexists(partial):
        return
    marker = partial / MARKER
    if partial.is_symlink() or not marker.is_file():
        raise OutputError(
            f"{str(partial)!r} is in the way, and no conversion made it.",
            "Remove it, or choose another output path.",
        )
    with open(marker, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(partial) from None
        if _is_same(marker, os.fstat(file.fileno())):  # not one that took its place meanwhile
            _remove(partial)


def _publish(partial: Path, target: Path) -> None:
    """Give the finished folder its name; an older folder of that name goes after that."""
    _sync_folder(partial)
    (partial / MARKER).unlink()
    if not target.exists():
        partial.rename(target)
        _sync_folder(target.parent)
        return
    replaced = _beside(target, REPLACED)
    try:
        target.rename(replaced)
        partial.rename(target)
    except BaseException:
        if not os.path.lexists(target):
            replaced.rename(target)
        raise
    _sync_folder(target.parent)
    try:
        shutil.rmtree(replaced)
    except OSError as error:
        raise OutputError(
            f"The new model is complete, but the old one could not be removed from "
            f"{str(replaced)!r}: {error.strerror}.",
            "Remove that folder yourself.",
        ) from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def as_output_errors(target: Path) -> Iterator[None]:
    """Turn the system's errors into OutputError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OutputError(
                f"The disk is full: writing {str(target)!r} failed.",
                "Free some space, or choose a path on another disk.",
            ) from None
        reason = error.strerror or type(error).__name__
        raise OutputError(
            f"Writing {str(target)!r} failed: {reason}.", "Choose another path."
        ) from None
