"""Typed values out of a config mapping; every wrong value is a ModelError that names the field.

Knows nothing about which fields exist. A field that is absent or null takes the default; a field
without a default is required.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from mlx_diffusiongemma.config.jsonfile import shown
from mlx_diffusiongemma.errors import ModelError

MAX_INTEGER = 2**31 - 1


class Fields:
    """One JSON object of a config file, with the dotted name it has there.

    `file` is the file's name, `prefix` the dotted path of the object ("" for the top).
    """

    def __init__(self, values: Mapping[str, Any], file: str, prefix: str = "") -> None:
        self.values = values
        self.file = file
        self.prefix = prefix

    def path(self, name: str) -> str:
        """The dotted name of a field, e.g. text_config.head_dim."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def has(self, name: str) -> bool:
        """True when the field is there and not null."""
        return self.values.get(name) is not None

    def fail(self, name: str, must: str) -> NoReturn:
        """Raise the ModelError "<field> in <file> must <must>, not <value>."."""
        value = shown(self.values.get(name))
        raise ModelError(f"{self.path(name)} in {self.file} must {must}, not {value}.")

    def missing(self, name: str) -> NoReturn:
        """Raise the ModelError for a required field that is absent or null."""
        raise ModelError(f"{self.path(name)} is missing from {self.file}.")

    def integer(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = MAX_INTEGER
    ) -> int:
        """A whole number from `least` to `most`; booleans and floats are refused."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                self.missing(name)
            return default
        if not is_integer(value):
            self.fail(name, "be a whole number")
        if not least <= value <= most:
            self.fail(name, f"be a whole number from {least} to {most}")
        return int(value)

    def optional_integer(self, name: str, default: int | None, *, least: int = 0) -> int | None:
        """Like integer, but an explicit null means None; `default` is for an absent field."""
        if name not in self.values:
            return default
        if self.values[name] is None:
            return None
        return self.integer(name, least=least)

    def number(
        self, name: str, default: float | None = None, *, least: float = 0.0, open_end: bool = False
    ) -> float:
        """A finite number of at least `least` (above it when `open_end`)."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                self.missing(name)
            return default
        wanted = f"be a finite number {'above' if open_end else 'of at least'} {least:g}"
        if not is_number(value):
            self.fail(name, wanted)
        result = float(value)
        if result < least or (open_end and result == least):
            self.fail(name, wanted)
        return result

    def flag(self, name: str, default: bool) -> bool:
        """Either true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(name, "be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                self.missing(name)
            return default
        if not isinstance(value, str):
            self.fail(name, "be a text")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of `allowed`."""
        value = self.text(name, default)
        if value not in allowed:
            self.fail(name, f"be {' or '.join(allowed)}")
        return value

    def section(self, name: str) -> Fields | None:
        """A nested object, or None when it is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.fail(name, "be an object")
        return Fields(value, self.file, self.path(name))

    def token_ids(self, name: str) -> tuple[int, ...] | None:
        """Token ids given as one number or a list; None when absent, () when null or []."""
        if name not in self.values:
            return None
        value = self.values[name]
        if value is None:
            return ()
        items = value if isinstance(value, list | tuple) else [value]
        if not all(is_integer(item) and 0 <= item <= MAX_INTEGER for item in items):
            self.fail(name, "be a token id or a list of token ids (whole numbers from 0)")
        return tuple(dict.fromkeys(int(item) for item in items))


def is_integer(value: object) -> bool:
    """True for an int that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True for a finite int or float that fits a double and is not a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
