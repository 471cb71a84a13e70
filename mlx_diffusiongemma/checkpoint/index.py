"""A folder of safetensors files as one checked table of tensors, with lazy reading.

All headers and the index are checked before any array is loaded; other formats (pickle, GGUF) are
never opened. What the names mean is left to `weights`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mlx_diffusiongemma.checkpoint.header import TensorInfo, read_header
from mlx_diffusiongemma.config.jsonfile import read_json_object, shown, shown_path
from mlx_diffusiongemma.errors import ModelError

if TYPE_CHECKING:
    import mlx.core as mx

INDEX_FILE = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 * 1024 * 1024
SUFFIX = ".safetensors"
_OTHER_FORMATS = (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".npz", ".h5", ".msgpack")


class Checkpoint:
    """The tensors of one model folder.

    `tensors` maps each stored name to its description, `files` are the shard names in order,
    `extra_files` are safetensors files beside them that the index does not name,
    `total_bytes` is the size of all tensors' data.
    """

    def __init__(
        self, folder: Path, tensors: Mapping[str, TensorInfo], extra_files: tuple[str, ...] = ()
    ) -> None:
        self.folder = folder
        self.tensors = MappingProxyType(dict(tensors))
        self.files = tuple(sorted({info.file for info in tensors.values()}))
        self.extra_files = extra_files
        self.total_bytes = sum(info.nbytes for info in tensors.values())
        self._open: dict[str, dict[str, Any]] = {}

    def read(self, name: str) -> mx.array:
        """The tensor as a lazy array: its bytes are read when it is evaluated.

        The checkpoint keeps no reference to what it hands out, so a tensor lives only as long as
        the caller's array. Raises ModelError when the file has become unreadable.
        """
        import mlx.core as mx

        info = self.tensors[name]
        if name not in self._open.get(info.file, {}):
            path = self.folder / info.file
            try:
                with _descriptor_zero_taken():
                    loaded = mx.load(str(path), format="safetensors")
            except (RuntimeError, ValueError, OSError):
                raise ModelError(f"{shown(info.file)} cannot be read.") from None
            assert isinstance(loaded, dict)
            self._open[info.file] = loaded
        try:
            array: mx.array = self._open[info.file].pop(name)
        except KeyError:
            raise ModelError(f"{shown(info.file)} has changed while it was read.") from None
        if array.shape != info.shape:
            raise ModelError(f"{shown(info.file)} has changed while it was read.")
        return array


@contextmanager
def _descriptor_zero_taken() -> Iterator[None]:
    """Keeps a file from getting descriptor 0, which mlx takes for a failure to open it.

    A process that was started with its standard input closed would hand it out.
    """
    spare = os.open(os.devnull, os.O_RDONLY)
    try:
        yield
    finally:
        os.close(spare)


def open_checkpoint(folder: Path) -> Checkpoint:
    """Find and check every weight file of a model folder; nothing is loaded yet.

    Accepts one file, several with `model.safetensors.index.json`, and several without an index
    whose tensor names are disjoint. Raises ModelError for everything that does not fit together.
    """
    if not folder.is_dir():
        raise ModelError(f"There is no model folder {shown_path(folder)}.")
    index = folder / INDEX_FILE
    if index.exists() or index.is_symlink():
        weight_map = _read_index(index)
        files = sorted(set(weight_map.values()))
    else:
        weight_map = None
        files = _weight_files(folder)
        if not files:
            raise _no_weights(folder)
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, info in read_header(_inside(folder, file)).items():
            if name in tensors:
                raise ModelError(
                    f"Tensor {shown(name)} is in both {shown(tensors[name].file)} "
                    f"and {shown(file)}.",
                    "Remove the weight files that do not belong to this model.",
                )
            tensors[name] = info
    if weight_map is not None:
        _compare(weight_map, tensors)
    if not tensors:
        raise ModelError(f"The weight files of {shown_path(folder)} hold no tensors.")
    extra = () if weight_map is None else tuple(f for f in _weight_files(folder) if f not in files)
    return Checkpoint(folder, tensors, extra)


def indexed_files(folder: Path) -> list[str]:
    """The shard names the folder's index calls for, sorted; ModelError when it is damaged."""
    return sorted(set(_read_index(folder / INDEX_FILE).values()))


def _read_index(path: Path) -> dict[str, str]:
    """The index's weight_map: tensor name -> file name, both checked."""
    content = read_json_object(path, limit=MAX_INDEX_BYTES)
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"weight_map in {INDEX_FILE} must map tensor names to files.")
    for file in weight_map.values():
        if not is_shard_name(file):
            raise ModelError(
                f"{INDEX_FILE} names {shown(file)}, which is not a plain {SUFFIX} file name."
            )
    return weight_map


def is_shard_name(name: object) -> bool:
    """True for a plain file name ending in .safetensors: no separator, control or hidden start."""
    return (
        isinstance(name, str)
        and name.endswith(SUFFIX)
        and len(name) <= 255
        and name.isprintable()
        and not name.startswith(".")
        and not set(name) & set("/\\:")
    )


def _weight_files(folder: Path) -> list[str]:
    names = _names(folder)
    return [name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise ModelError(
            f"The folder {shown_path(folder)} cannot be read: {error.strerror}."
        ) from None


def _inside(folder: Path, file: str) -> Path:
    """The path of a shard; links may lead only within the folder or into its hub cache."""
    path = folder / file
    if not is_shard_name(file):
        raise ModelError(f"The weight file {shown(file)} has an unusable name.")
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ModelError(
            f"The weight file {shown(file)} is missing.",
            f"Complete the download; if the index is stale, remove {INDEX_FILE}.",
        ) from None
    home = folder.resolve()
    allowed = [home]
    # The hub cache keeps <repo>/snapshots/<commit>/<file> as links to <repo>/blobs/<hash>.
    if home.parent.name == "snapshots":
        allowed.append(home.parent.parent / "blobs")
    if not any(real.is_relative_to(place) for place in allowed):
        raise ModelError(f"The weight file {shown(file)} is a link that leaves the model folder.")
    return path


def _compare(weight_map: Mapping[str, str], tensors: Mapping[str, TensorInfo]) -> None:
    """The index and the headers must name the same tensors in the same files."""
    for name, file in weight_map.items():
        info = tensors.get(name)
        if info is None or info.file != file:
            raise ModelError(
                f"{INDEX_FILE} says that {shown(name)} is in {shown(file)}, but it is not there.",
                "Complete the download, or remove the stale index.",
            )
    for name, info in tensors.items():
        if name not in weight_map:
            raise ModelError(
                f"Tensor {shown(name)} in {shown(info.file)} is not listed in {INDEX_FILE}.",
                "Complete the download, or remove the stale index.",
            )


def _no_weights(folder: Path) -> ModelError:
    others = [name for name in _names(folder) if name.endswith(_OTHER_FORMATS)]
    if others:
        return ModelError(
            f"The model's weights are in {shown(others[0])}; only {SUFFIX} files are supported.",
            "Get the model's safetensors version; pickle and GGUF files are never opened.",
        )
    return ModelError(f"The folder {shown_path(folder)} has no {SUFFIX} files.")
