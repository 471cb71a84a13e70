"""Splits a model's output into answer, thinking and tool calls, a few tokens at a time.

What the spans mean is in spans.py, the form of a call in toolcalls.py, decoding in detokenize.py.
Texts such as <think> that are not marks of this model stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mlx_diffusiongemma.errors import UsageError
from mlx_diffusiongemma.text.detokenize import Detokenizer
from mlx_diffusiongemma.text.spans import (
    CALL_CLOSE,
    CALL_OPEN,
    CHANNEL_CLOSE,
    CHANNEL_OPEN,
    MARKS,
    Kind,
    Piece,
    Spans,
    State,
    channel_kind,
)
from mlx_diffusiongemma.text.tokenizer import Tokenizer
from mlx_diffusiongemma.text.toolcalls import QUOTE, ToolCall, ToolCallError, parse_tool_call

__all__ = [
    "CALL_CLOSE",
    "CALL_OPEN",
    "CHANNEL_CLOSE",
    "CHANNEL_OPEN",
    "ChannelSplitter",
    "Kind",
    "Piece",
    "State",
    "ToolCall",
    "ToolCallError",
    "channel_state",
    "parse_tool_call",
    "strip_thinking",
]

_TURN_OPEN = "<|turn>"
# Texts of tokens that end an answer or fill the rest of a canvas; never part of what is said.
_ENDS = ("<eos>", "<turn|>", "<|tool_response>", "<pad>")


class ChannelSplitter:
    """Takes a model's output as ids (with a tokenizer) or as text, and gives pieces of one kind.

    `start` says in which state the output begins (see channel_state): the prompt may have opened a
    channel. Ids are the safer form: a mark is then a token, and a user's "<channel|>" that the
    model repeats as plain text stays text. All special tokens but the marks are dropped from ids;
    from text, the end tokens and <pad> are. The pieces do not depend on how the output is cut.
    """

    def __init__(self, tokenizer: Tokenizer | None = None, *, start: State = "answer") -> None:
        self._spans = Spans(start)
        self._tokenizer = tokenizer
        self._text_scanner = _Scanner(MARKS + _ENDS)
        if tokenizer is None:
            return
        self._detokenizer = Detokenizer(tokenizer)
        marks = {mark: tokenizer.token_id(mark) for mark in MARKS}
        self._marks = {token: mark for mark, token in marks.items() if token is not None}
        # A tokenizer that lacks a mark can only spell it.
        self._id_scanner = _Scanner([mark for mark, token in marks.items() if token is None])
        self._quote = tokenizer.token_id(QUOTE)
        ends = [tokenizer.token_id(text) for text in _ENDS]
        self._ends = {token for token in ends if token is not None} | set(tokenizer.eos_token_ids)

    @property
    def state(self) -> Kind:
        """Where the output stands; after `finish`, where it was cut off or ended."""
        return "thinking" if self._spans.state == "name" else self._spans.state

    def feed(self, data: str | Iterable[int]) -> list[Piece]:
        """Take more output, and return the pieces that are now final."""
        if isinstance(data, str):
            self._flush_ids()
            self._pass_on(self._text_scanner.feed(data))
        else:
            self._pass_on(self._text_scanner.finish())
            self._feed_ids(data)
        return self._spans.take()

    def finish(self) -> list[Piece]:
        """The output is over: return the rest."""
        self._flush_ids()
        self._pass_on(self._text_scanner.finish())
        self._spans.end()
        return self._spans.take()

    def _feed_ids(self, ids: Iterable[int]) -> None:
        tokenizer = self._tokenizer
        if tokenizer is None:
            raise UsageError("Splitting token ids takes a tokenizer.")
        run: list[int] = []
        for token in ids:
            mark = self._marks.get(token)
            is_text = mark is None and token not in tokenizer.special_ids
            in_call = self._spans.state == "tool_call" and token == self._quote
            if (is_text and token not in self._ends) or in_call:
                run.append(token)
                continue
            self._decode(run)
            run.clear()
            self._flush_ids()
            if mark is not None:
                self._spans.mark(mark)
            elif token in self._ends:
                self._spans.interrupt()
        self._decode(run)

    def _decode(self, ids: Sequence[int]) -> None:
        if ids:
            self._pass_on(self._id_scanner.feed(self._detokenizer.add(ids)))

    def _flush_ids(self) -> None:
        if self._tokenizer is not None:
            self._pass_on(self._id_scanner.feed(self._detokenizer.flush()))
            self._pass_on(self._id_scanner.finish())

    def _pass_on(self, found: Iterable[tuple[str, str]]) -> None:
        for text, mark in found:
            if text:
                self._spans.text(text)
            if mark in _ENDS:
                self._spans.interrupt()
            elif mark:
                self._spans.mark(mark)


class _Scanner:
    """Finds marks in text that comes in parts."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._pattern = re.compile("|".join(map(re.escape, marks)) or "(?!)")
        # A mark cut short at the end of a part: longest first, so that the search finds it.
        starts = {mark[:size] for mark in marks for size in range(1, len(mark))}
        longest_first = sorted(starts, key=len, reverse=True)
        self._cut = re.compile(f"(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})\\Z")
        self._longest = max(map(len, starts), default=0)
        self._held = ""

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Pairs of text and the mark behind it ("" at the end); a cut mark is held back."""
        text = self._held + text
        found: list[tuple[str, str]] = []
        start = 0
        for match in self._pattern.finditer(text):
            found.append((text[start : match.start()], match.group()))
            start = match.end()
        cut = self._cut.search(text, max(start, len(text) - self._longest))
        end = cut.start() if cut else len(text)
        self._held = text[end:]
        found.append((text[start:end], ""))
        return found

    def finish(self) -> list[tuple[str, str]]:
        """What is held back is text after all."""
        text, self._held = self._held, ""
        return [(text, "")]


def strip_thinking(text: str) -> str:
    """An assistant's text without its thinking, as a history has to keep it.

    Thought channels go, closed or not; so does all text before a closing mark that was never
    opened (the prompt had opened it). Other channels lose only their marks and name. Text that held
    marks comes back without white space around it; other text is unchanged.
    """
    opening, closing = text.find(CHANNEL_OPEN), text.find(CHANNEL_CLOSE)
    if opening < 0 and closing < 0:
        return text
    opened_before = closing >= 0 and (opening < 0 or closing < opening)
    spans = Spans("thinking" if opened_before else "answer")
    scanner = _Scanner((CHANNEL_OPEN, CHANNEL_CLOSE))
    for part, mark in [*scanner.feed(text), *scanner.finish()]:
        if part:
            spans.text(part)
        if mark:
            spans.mark(mark)
    spans.end()
    return "".join(piece.text for piece in spans.take() if piece.kind == "answer").strip()


def channel_state(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> State:
    """The state in which the output begins after a prompt: does the prompt end inside a channel?"""
    opening, closing = tokenizer.token_id(CHANNEL_OPEN), tokenizer.token_id(CHANNEL_CLOSE)
    turn = tokenizer.token_id(_TURN_OPEN)
    for position in range(len(prompt_ids) - 1, -1, -1):
        token = prompt_ids[position]
        if token in (closing, turn):
            return "answer"
        if token == opening:
            name, line_break, _ = tokenizer.decode(prompt_ids[position + 1 :]).partition("\n")
            if not line_break and not name.strip():
                return "name"
            return "thinking" if channel_kind(name) == "thinking" else "answer"
    return "answer"
