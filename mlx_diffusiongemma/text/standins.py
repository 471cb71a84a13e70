"""Stand-in characters that show which characters of a rendered prompt came from the caller.

The punctuation special tokens are made of (< | > ") is replaced in the caller's text by lone
surrogates, which no valid text holds; after rendering they are turned back, and their positions
tell where the caller's own characters stand. How ids are made from that is left to chat.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from mlx_diffusiongemma.errors import ModelError

_FIRST = 0xD800
_MOST = 0x400  # the high surrogates; two of them never make up one character
_ANY = re.compile("[\ud800-\udbff]")


class StandIns:
    """Stand-ins for the special tokens of one tokenizer."""

    def __init__(self, special: Iterable[str]) -> None:
        longest_first = sorted(special, key=len, reverse=True)
        self.pattern = _one_of(longest_first)
        # Every place where a token begins, inside another one too.
        self._begins = re.compile(f"(?=(?:{self.pattern.pattern})).", re.DOTALL)
        # Letters stay as they are, or no template would know its own keywords.
        punctuation = {c for text in longest_first for c in text if not _is_word(c)}
        words = [text for text in longest_first if punctuation.isdisjoint(text)]
        self._word_begins = re.compile(f"(?=(?:{_one_of(words).pattern})).", re.DOTALL)
        hidden = sorted(punctuation | {text[0] for text in longest_first})
        if len(hidden) > _MOST:
            raise ModelError("The tokenizer's special tokens use too many different characters.")
        self._to = {character: chr(_FIRST + i) for i, character in enumerate(hidden)}
        self._back = {stand_in: character for character, stand_in in self._to.items()}
        self._table = str.maketrans({c: self._to[c] for c in punctuation})
        self._back_table = str.maketrans(self._back)

    def hide_all(self, value: Any) -> Any:
        """A copy of plain JSON values in which no special token's punctuation is left."""
        return _deep(value, self._hide_all)

    def hide_tokens(self, value: Any) -> Any:
        """A copy in which only the first character of each special token is hidden."""
        return _deep(value, lambda text: self._begins.sub(self._swap, text))

    def show(self, text: str) -> tuple[str, list[int]]:
        """The text with the hidden characters back, and their positions in rising order."""
        places = [match.start() for match in _ANY.finditer(text) if match.group() in self._back]
        return self._show(text), places

    def dump(self, value: Any, **options: Any) -> str:
        """The JSON text of a value that may hold stand-ins: its quotes are escaped as always."""
        return self._hide_all(json.dumps(_deep(value, self._show), **options))

    def _hide_all(self, text: str) -> str:
        return self._word_begins.sub(self._swap, text).translate(self._table)

    def _show(self, text: str) -> str:
        return text.translate(self._back_table)

    def _swap(self, match: re.Match[str]) -> str:
        return self._to[match.group()]


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_" or character.isspace()


def _one_of(texts: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) or "(?!)")


def _deep(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of plain JSON values with every string, keys included, changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_deep(key, change): _deep(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_deep(item, change) for item in value]
    return value
