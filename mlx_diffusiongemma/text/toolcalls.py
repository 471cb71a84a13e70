"""Parses the call a model writes between tool-call marks; finding the marks is left to channels.py.

The form is `call:NAME{key:VALUE,...}`. A value is a string in <|"|> marks, a number, true, false,
null, {key:VALUE,...} or [VALUE,...]; keys are bare. What models write by mistake and nobody can
misread is taken too: strings in plain quotes, quoted keys, bare words, a comma too many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlx_diffusiongemma.errors import DiffusionGemmaError
from mlx_diffusiongemma.text.files import one_line

QUOTE = '<|"|>'
_MAX_DEPTH = 64
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"call:\s*([^\s{}\[\],\"<>|]+)\s*(?=\{)")
_PLAIN_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_BARE_KEY = re.compile(r"[^\s{}\[\],:\"<>|](?:[^{}\[\],:\"<>|\n]*[^\s{}\[\],:\"<>|])?")
_BARE_VALUE = re.compile(r"[^\s{}\[\],\"<>|](?:[^{}\[\],\"<>|\n]*[^\s{}\[\],\"<>|])?")
_INTEGER = re.compile(r"-?\d{1,400}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


class ToolCallError(DiffusionGemmaError):
    """The text of a tool call is not of the expected form."""


@dataclass(frozen=True)
class ToolCall:
    """A call the model asks for: the tool's name and its arguments as plain JSON values."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def to_message(self) -> Mapping[str, Any]:
        """The call as an entry of an assistant message's "tool_calls"."""
        return {
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


def parse_tool_call(text: str) -> ToolCall:
    """The call in the text between the marks; ToolCallError says where that text is wrong."""
    return _Parser(text).call()


class _Parser:
    """Reads one call from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def call(self) -> ToolCall:
        self._skip()
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._error("it does not begin with call:NAME{")
        self._at = match.end()
        arguments = self._mapping(1)
        self._skip()
        if self._at < len(self._text):
            raise self._error("text follows the closing brace")
        return ToolCall(match.group(1), arguments)

    def _mapping(self, depth: int) -> dict[str, Any]:
        self._at += 1
        result: dict[str, Any] = {}
        while not self._closes("}"):
            key = self._key()
            if not self._takes(":"):
                raise self._error(f"a colon is missing after the key {key!r}")
            result[key] = self._value(depth)
            self._comma("}")
        return result

    def _sequence(self, depth: int) -> list[Any]:
        self._at += 1
        result: list[Any] = []
        while not self._closes("]"):
            result.append(self._value(depth))
            self._comma("]")
        return result

    def _key(self) -> str:
        quoted = self._quoted()
        if quoted is not None:
            return quoted
        match = _BARE_KEY.match(self._text, self._at)
        if match is None:
            raise self._error("a key is missing")
        self._at = match.end()
        return match.group()

    def _value(self, depth: int) -> Any:
        self._skip()
        quoted = self._quoted()
        if quoted is not None:
            return quoted
        here = self._text[self._at : self._at + 1]
        if here in ("{", "["):
            if depth >= _MAX_DEPTH:
                raise self._error("it is nested too deeply")
            return self._mapping(depth + 1) if here == "{" else self._sequence(depth + 1)
        match = _BARE_VALUE.match(self._text, self._at)
        if match is None:
            raise self._error("a value is missing")
        word = match.group()
        if ":" in word and any(map(str.isspace, word)):
            raise self._error("a comma or quotes are missing")  # a:1 b:2
        self._at = match.end()
        return _bare_value(word)

    def _quoted(self) -> str | None:
        if self._text.startswith(QUOTE, self._at):
            start = self._at + len(QUOTE)
            end = self._text.find(QUOTE, start)
            if end < 0:
                raise self._error("a string has no end")
            self._at = end + len(QUOTE)
            return self._text[start:end]
        match = _PLAIN_STRING.match(self._text, self._at)
        if match is None:
            return None
        try:
            text = json.loads(match.group(), strict=False)
        except ValueError as error:
            raise self._error("a string is damaged") from error
        self._at = match.end()
        return str(text)

    def _comma(self, closing: str) -> None:
        if not self._takes(",") and not self._sees(closing):
            raise self._error(f"a comma or {closing} is missing")

    def _closes(self, closing: str) -> bool:
        if self._takes(closing):
            return True
        if self._at >= len(self._text):
            raise self._error(f"{closing} is missing")
        return False

    def _takes(self, character: str) -> bool:
        if self._sees(character):
            self._at += 1
            return True
        return False

    def _sees(self, character: str) -> bool:
        self._skip()
        return self._text.startswith(character, self._at)

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _error(self, reason: str) -> ToolCallError:
        near = one_line(self._text[max(0, self._at - 20) : self._at + 20])
        return ToolCallError(f"The tool call is malformed: {reason}, near {near!r}.")


def _bare_value(word: str) -> Any:
    """A number, a truth value or null; any other bare word is a string."""
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _NUMBER.fullmatch(word):
        number = float(word)
        return number if number not in (float("inf"), float("-inf")) else word
    return word
