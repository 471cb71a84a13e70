"""One safetensors file's header, checked before any of its bytes are used.

Which files belong together is left to `index`, what the tensors mean to `weights`.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mlx_diffusiongemma.config.fields import is_integer
from mlx_diffusiongemma.config.jsonfile import parse_json_object, shown
from mlx_diffusiongemma.errors import ModelError

MAX_HEADER_BYTES = 100_000_000  # the safetensors format's own limit
MAX_NAME = 512
MAX_RANK = 8
DTYPE_BYTES: Mapping[str, int] = {  # those MLX can read
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "C64": 8,
}
_AGAIN = "Download or copy the file again."


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as its header declares it; `dtype` is the safetensors name, e.g. BF16."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Tensors of one file, by name, in the order of their bytes.

    Raises ModelError unless the header is whole, valid, strict JSON and its tensors fill the rest
    of the file exactly: known dtypes, no negative sizes, no gap, overlap or missing byte.
    """
    label = shown(path.name)
    raw, size = _header_bytes(path, label)
    header = parse_json_object(raw, f"The header of {label}")
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        raise ModelError(
            f"The header of {label} has a __metadata__ that does not map text to text."
        )
    found = [_entry(path.name, name, value) for name, value in header.items()]
    found.sort(key=lambda item: item[:2])
    end = 0
    for start, stop, info in found:
        if start != end:
            problem = "overlaps the one before it" if start < end else "leaves a gap before it"
            raise ModelError(f"Tensor {shown(info.name)} in {label} {problem}.", _AGAIN)
        end = stop
    have = size - 8 - len(raw)
    if end > have:
        raise ModelError(f"{label} is cut short: it lacks {_bytes(end - have)}.", _AGAIN)
    if end < have:
        raise ModelError(f"{label} has {_bytes(have - end)} after its last tensor.", _AGAIN)
    return {info.name: info for _, _, info in found}


def _bytes(count: int) -> str:
    return f"{count} byte" if count == 1 else f"{count} bytes"


def _header_bytes(path: Path, label: str) -> tuple[bytes, int]:
    """The header's JSON bytes and the size of the whole file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{label} is not a regular file.")
            size = status.st_size
            if size == 0:
                raise ModelError(f"{label} is empty.", _AGAIN)
            prefix = stream.read(8)
            if prefix == b"version ":
                raise ModelError(
                    f"{label} is a Git LFS pointer, not the weights themselves.",
                    "Run `git lfs pull` in the folder it came from.",
                )
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= size - 8:
                raise ModelError(f"{label} is damaged: its header length is wrong.", _AGAIN)
            if length > MAX_HEADER_BYTES:
                raise ModelError(f"The header of {label} is larger than {MAX_HEADER_BYTES} bytes.")
            raw = stream.read(length)
    except OSError as error:
        raise ModelError(f"{label} cannot be read: {error.strerror}.") from None
    if len(raw) != length or raw[:1] != b"{":
        raise ModelError(f"{label} is not a safetensors file.", _AGAIN)
    return raw, size


def _entry(file: str, name: str, value: Any) -> tuple[int, int, TensorInfo]:
    """Start, stop and description of one header entry."""

    def refuse(problem: str) -> NoReturn:
        raise ModelError(f"Tensor {shown(name)} in {shown(file)} {problem}.")

    if not name or len(name) > MAX_NAME:
        refuse(f"has a name that is not 1 to {MAX_NAME} characters long")
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        refuse("is not described by exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    width = DTYPE_BYTES.get(dtype) if isinstance(dtype, str) else None
    if width is None:
        refuse(f"has the unsupported dtype {shown(dtype)}")
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        refuse(f"has the shape {shown(shape)}, which is not a list of up to {MAX_RANK} sizes")
    if not all(is_integer(size) and 0 <= size < 2**48 for size in shape):
        refuse(f"has the impossible shape {shown(shape)}")
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(is_integer(offset) and 0 <= offset < 2**63 for offset in offsets)
        and offsets[0] <= offsets[1]
    ):
        refuse(f"has the impossible data_offsets {shown(offsets)}")
    nbytes = width
    for size in shape:
        nbytes *= size
    if offsets[1] - offsets[0] != nbytes:
        refuse(f"needs {nbytes} bytes, but its data_offsets span {offsets[1] - offsets[0]}")
    return offsets[0], offsets[1], TensorInfo(name, file, dtype, tuple(shape), nbytes)
