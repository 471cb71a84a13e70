"""The states an answer goes through between its marks; where text and marks come from is left out.

Marks are <|channel> and <channel|> around a named channel, <|tool_call> and <tool_call|> around a
call. A channel begins with its name on a line: "thought" is the model's thinking, every other name
is dropped and its text is answer. Nothing here raises: a model may write any of it wrongly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mlx_diffusiongemma.text.toolcalls import ToolCall, ToolCallError, parse_tool_call

Kind = Literal["answer", "thinking", "tool_call"]
# "name": just behind <|channel>, before the name's line ends.
State = Literal["answer", "thinking", "tool_call", "name"]

CHANNEL_OPEN = "<|channel>"
CHANNEL_CLOSE = "<channel|>"
CALL_OPEN = "<|tool_call>"
CALL_CLOSE = "<tool_call|>"
MARKS = (CHANNEL_OPEN, CHANNEL_CLOSE, CALL_OPEN, CALL_CLOSE)

_THOUGHT = "thought"
# What may still become a name; longer or with anything else in it, it is text without a name.
_NAME_SO_FAR = re.compile(r"[ \t]*(?:[^\W\d][\w-]{0,31}[ \t]*)?")
_THOUGHT_WITHOUT_BREAK = re.compile(r"\A[ \t]*thought(?=\W)[ \t]*", re.IGNORECASE)


@dataclass(frozen=True)
class Piece:
    """A stretch of one kind. For a tool call, `text` is what stood between the marks; `call` is the
    parsed call, or None with the reason in `error`.
    """

    kind: Kind
    text: str
    call: ToolCall | None = None
    error: str | None = None


def channel_kind(name: str) -> Kind:
    """Kind of a channel by its name: the thought channel, or one without a name, is thinking."""
    return "thinking" if name.strip().lower() in ("", _THOUGHT) else "answer"


class Spans:
    """Takes text and marks in order, and collects pieces."""

    def __init__(self, start: State = "answer") -> None:
        self.state: State = start
        self._outside: State = "answer"  # where a finished tool call leads back to
        self._name = ""
        self._call: list[str] = []
        self._pieces: list[Piece] = []

    def take(self) -> list[Piece]:
        """The pieces collected since the last call; neighbours of one kind are joined."""
        pieces, self._pieces = self._pieces, []
        joined: list[Piece] = []
        for piece in pieces:
            last = joined[-1] if joined else None
            if last is not None and last.kind == piece.kind != "tool_call":
                joined[-1] = Piece(piece.kind, last.text + piece.text)
            else:
                joined.append(piece)
        return joined

    def text(self, text: str) -> None:
        """Text, marks already taken out."""
        if self.state == "tool_call":
            self._call.append(text)
        elif self.state == "name":
            self._name += text
            self._settle_name()
        else:
            self._emit(self.state, text)

    def mark(self, mark: str) -> None:
        """One of MARKS. A mark that has no place here is dropped."""
        if mark == CALL_CLOSE:
            if self.state == "tool_call":
                self._end_call(closed=True)
            return
        self.interrupt()
        if mark == CHANNEL_OPEN:
            self.state, self._name = "name", ""
        elif mark == CHANNEL_CLOSE:
            self.state = "answer"
        elif mark == CALL_OPEN:
            self._outside, self.state = self.state, "tool_call"

    def interrupt(self) -> None:
        """A mark or an end token ends a call or a channel name that was not ended itself."""
        if self.state == "tool_call":
            self._end_call(closed=False)
        elif self.state == "name":
            self._end_name()

    def end(self) -> None:
        """The output is over. `state` goes on to say where it ended."""
        if self.state == "tool_call":
            self._end_call(closed=False)
            self.state = "tool_call"
        elif self.state == "name":
            self._end_name()

    def _emit(self, kind: Literal["answer", "thinking"], text: str) -> None:
        if text:
            self._pieces.append(Piece(kind, text))

    def _settle_name(self) -> None:
        """Decide on the channel as soon as its name is complete, or cannot be one."""
        name, line_break, rest = self._name.partition("\n")
        if _NAME_SO_FAR.fullmatch(name):
            if line_break:
                kind = channel_kind(name)
                self.state = "thinking" if kind == "thinking" else "answer"
                self._emit(self.state, rest)
            return
        self.state = "thinking"
        self._emit("thinking", _THOUGHT_WITHOUT_BREAK.sub("", self._name, count=1))

    def _end_name(self) -> None:
        """A name that never got its line break: "thought" or a part of it, or else text."""
        self.state = "thinking"
        if not _THOUGHT.startswith(self._name.strip().lower()):
            self._emit("thinking", self._name)

    def _end_call(self, *, closed: bool) -> None:
        text = "".join(self._call)
        self._call.clear()
        self.state = self._outside
        try:
            # Without its closing mark a call counts when it is complete.
            self._pieces.append(Piece("tool_call", text, call=parse_tool_call(text)))
        except ToolCallError as error:
            message = error.message if closed else "The tool call was cut off."
            self._pieces.append(Piece("tool_call", text, error=message))
