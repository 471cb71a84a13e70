"""Safetensors files written a tensor at a time, and the plan of which tensor goes into which file.

`mx.save_safetensors` wants a whole file's tensors in memory and does not report a full disk; here
the header is written first, from the plan, and each tensor's bytes go straight to their place.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import mlx.core as mx
import numpy as np

from mlx_diffusiongemma.checkpoint.header import DTYPE_BYTES

FILE_MODE = 0o644
METADATA = {"format": "mlx"}
_CHUNK = 16 * 1024 * 1024
_DTYPES = {
    mx.uint8: "U8",
    mx.uint32: "U32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.float32: "F32",
}


@dataclass(frozen=True)
class OutputTensor:
    """One tensor to be written; `dtype` is the safetensors name, e.g. BF16."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in the file."""
        size = DTYPE_BYTES[self.dtype]
        for length in self.shape:
            size *= length
        return size


def plan_shards(
    groups: Iterable[Sequence[OutputTensor]], limit: int
) -> list[list[Sequence[OutputTensor]]]:
    """Groups of tensors in their order, cut into files of at most `limit` bytes of data.

    A group (one module's tensors) is never split; one that is larger than `limit` gets a file of
    its own.
    """
    shards: list[list[Sequence[OutputTensor]]] = []
    room = 0
    for group in groups:
        size = sum(tensor.nbytes for tensor in group)
        if not shards or size > room:
            shards.append([])
            room = limit
        shards[-1].append(group)
        room -= size
    return shards


def shard_names(count: int) -> list[str]:
    """The file names of a model of `count` weight files."""
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]


def index_content(files: Mapping[str, Sequence[OutputTensor]]) -> dict[str, object]:
    """The index of several weight files: which tensor is where, and the size of all data."""
    placed = {tensor.name: file for file, tensors in files.items() for tensor in tensors}
    total = sum(tensor.nbytes for tensors in files.values() for tensor in tensors)
    return {
        "metadata": {"total_size": total},
        "weight_map": {name: placed[name] for name in sorted(placed)},
    }


class ShardWriter:
    """Writes one safetensors file; a context manager that ends with the bytes on the disk.

    Tensors may come in any order. On leaving without an error every planned tensor must have been
    written. Raises OSError as the system does.
    """

    def __init__(self, path: Path, tensors: Sequence[OutputTensor]) -> None:
        # Widest first, so that every tensor is aligned to its own width, as safetensors does it.
        order = sorted(tensors, key=lambda tensor: (-DTYPE_BYTES[tensor.dtype], tensor.name))
        header: dict[str, object] = {"__metadata__": METADATA}
        self._starts: dict[str, int] = {}
        self._pending = {tensor.name: tensor for tensor in order}
        end = 0
        for tensor in order:
            start, end = end, end + tensor.nbytes
            self._starts[tensor.name] = start
            header[tensor.name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [start, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._head = struct.pack("<Q", len(text)) + text
        self.path = path

    def __enter__(self) -> ShardWriter:
        self._file = open(self.path, "xb", buffering=0)
        try:
            self._put(0, self._head)
        except BaseException:
            self._file.close()
            raise
        return self

    def write(self, name: str, array: mx.array) -> None:
        """Write one planned tensor; its dtype and shape must be the planned ones."""
        tensor = self._pending.pop(name)
        if _DTYPES.get(array.dtype) != tensor.dtype or array.shape != tensor.shape:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, planned was {tensor}")
        self._put(len(self._head) + self._starts[name], _bytes_of(array))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if error is None:
                if self._pending:
                    raise ValueError(f"{self.path.name} lacks {', '.join(self._pending)}")
                sync(self._file.fileno())

    def _put(self, position: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        self._file.seek(position)
        while view:
            view = view[self._file.write(view[:_CHUNK]) :]


def _bytes_of(array: mx.array) -> memoryview:
    """The bytes of an array, row-major, without a copy where it is stored so already."""
    if array.dtype == mx.bfloat16:
        array = array.view(mx.uint16)  # numpy has no bfloat16
    return np.ascontiguousarray(np.array(array, copy=False)).data.cast("B")


def sync(descriptor: int) -> None:
    """Set the file's mode and wait until the disk has it."""
    os.fchmod(descriptor, FILE_MODE)
    os.fsync(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Write a small new file and wait until the disk has it."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        sync(file.fileno())


def json_bytes(content: Mapping[str, object]) -> bytes:
    """A JSON file's bytes, indented."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
