"""What a conversion did, as data; the command line decides how to say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ConvertReport:
    """The result of `convert_checkpoint`.

    parameters: how many weights each part has (a name of recipes.PARTS -> count), vision included.
    bytes_in, bytes_out: tensor data read and written. seconds: wall time.
    modules_by_bits: bits -> number of modules packed with them.
    unquantized: matrices left as they are because their width is no multiple of the group.
    vision: tensors of the vision tower and its projection, which were kept (the tower unpacked).
    dropped: source tensors not written: tied copies and others nothing reads.
    files: names of the written files. notices: things to tell the user, one sentence each.
    """

    source: Path
    output: Path
    recipe: str
    parameters: Mapping[str, int]
    bytes_in: int
    bytes_out: int
    seconds: float
    modules_by_bits: Mapping[int, int]
    unquantized: tuple[str, ...]
    vision: tuple[str, ...]
    dropped: tuple[str, ...]
    files: tuple[str, ...]
    notices: tuple[str, ...]

    @property
    def bits_per_weight(self) -> float:
        """Bits written per weight, scales and biases included."""
        return 8 * self.bytes_out / sum(self.parameters.values())
