"""Answer, thinking and tool calls, from ids and from text, well formed and not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mlx_diffusiongemma.errors import UsageError
from mlx_diffusiongemma.text.channels import (
    ChannelSplitter,
    Piece,
    State,
    ToolCall,
    channel_state,
    strip_thinking,
)
from tests.unit.text import small

OPEN, CLOSE = "<|channel>", "<channel|>"
CALL, END_CALL = "<|tool_call>", "<tool_call|>"
Q = '<|"|>'


def split(text: str, start: State = "answer", by: str = "ids") -> tuple[list[Piece], str]:
    """Pieces and last state of a whole output, given at once."""
    tokenizer = small.tokenizer("library")
    splitter = ChannelSplitter(tokenizer if by == "ids" else None, start=start)
    pieces = splitter.feed(tokenizer.encode(text) if by == "ids" else text)
    return [*pieces, *splitter.finish()], splitter.state


def kinds(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    merged: list[tuple[str, str]] = []
    for piece in pieces:
        if merged and merged[-1][0] == piece.kind != "tool_call":
            merged[-1] = (piece.kind, merged[-1][1] + piece.text)
        else:
            merged.append((piece.kind, piece.text))
    return merged


CASES: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "plain": ("Hello\n  world ", [("answer", "Hello\n  world ")], "answer"),
    "empty": ("", [], "answer"),
    "thought and answer": (
        f"{OPEN}thought\nhm\n{CLOSE}Hi",
        [("thinking", "hm\n"), ("answer", "Hi")],
        "answer",
    ),
    "empty thought": (f"{OPEN}thought\n{CLOSE}Hi", [("answer", "Hi")], "answer"),
    "thought without line break": (f"{OPEN}thought{CLOSE}Hi", [("answer", "Hi")], "answer"),
    "unclosed": (f"{OPEN}thought\nhm hm", [("thinking", "hm hm")], "thinking"),
    "cut in the name": (f"{OPEN}thou", [], "thinking"),
    "cut before the name": (OPEN, [], "thinking"),
    "the word in prose": (
        "thought\nI thought: a thought",
        [("answer", "thought\nI thought: a thought")],
        "answer",
    ),
    "the word after a thought": (
        f"{OPEN}thought\nthought\n{CLOSE}thought\nx",
        [("thinking", "thought\n"), ("answer", "thought\nx")],
        "answer",
    ),
    "other name": (f"{OPEN}final\nHello{CLOSE}", [("answer", "Hello")], "answer"),
    "capital name": (
        f"{OPEN} Thought \nhm{CLOSE}x",
        [("thinking", "hm"), ("answer", "x")],
        "answer",
    ),
    "no name": (
        f"{OPEN}\nhm{CLOSE}x",
        [("thinking", "hm"), ("answer", "x")],
        "answer",
    ),
    "text in place of a name": (
        f"{OPEN}I am not a name\nhm{CLOSE}x",
        [("thinking", "I am not a name\nhm"), ("answer", "x")],
        "answer",
    ),
    "name and text on one line": (
        f"{OPEN}thought The user\nhm{CLOSE}x",
        [("thinking", "The user\nhm"), ("answer", "x")],
        "answer",
    ),
    "name too long": (
        f"{OPEN}{'a' * 40}\nhm{CLOSE}x",
        [("thinking", "a" * 40 + "\nhm"), ("answer", "x")],
        "answer",
    ),
    "stray close": (f"a{CLOSE}b", [("answer", "ab")], "answer"),
    "opened twice": (
        f"{OPEN}thought\na{OPEN}thought\nb{CLOSE}c",
        [("thinking", "ab"), ("answer", "c")],
        "answer",
    ),
    "two thoughts": (
        f"{OPEN}thought\na{CLOSE}b{OPEN}thought\nc{CLOSE}d",
        [("thinking", "a"), ("answer", "b"), ("thinking", "c"), ("answer", "d")],
        "answer",
    ),
    "ends and padding": ("Hi<turn|><pad><pad>", [("answer", "Hi")], "answer"),
    "end inside a thought": (f"{OPEN}thought\nhm<eos><pad>", [("thinking", "hm")], "thinking"),
    "think tags are text": ("<think>a</think>b", [("answer", "<think>a</think>b")], "answer"),
    "call": (
        f"{CALL}call:f{{a:{Q}x{Q}}}{END_CALL}<|tool_response>",
        [("tool_call", f"call:f{{a:{Q}x{Q}}}")],
        "answer",
    ),
    "call within text": (
        f"a{CALL}call:f{{}}{END_CALL}b",
        [("answer", "a"), ("tool_call", "call:f{}"), ("answer", "b")],
        "answer",
    ),
    "call after a thought": (
        f"{OPEN}thought\nhm\n{CLOSE}{CALL}call:f{{}}{END_CALL}",
        [("thinking", "hm\n"), ("tool_call", "call:f{}")],
        "answer",
    ),
    "call inside an unclosed thought": (
        f"{OPEN}thought\nhm{CALL}call:f{{}}{END_CALL}more",
        [("thinking", "hm"), ("tool_call", "call:f{}"), ("thinking", "more")],
        "thinking",
    ),
    "two calls": (
        f"{CALL}call:f{{}}{END_CALL}{CALL}call:g{{}}{END_CALL}",
        [("tool_call", "call:f{}"), ("tool_call", "call:g{}")],
        "answer",
    ),
    "call cut": (f"{CALL}call:f{{a:1", [("tool_call", "call:f{a:1")], "tool_call"),
    "stray end of call": (f"a{END_CALL}b", [("answer", "ab")], "answer"),
}


@pytest.mark.parametrize("by", ["ids", "text"])
@pytest.mark.parametrize("case", CASES)
def test_cases(case: str, by: str) -> None:
    text, expected, state = CASES[case]
    pieces, ended = split(text, by=by)
    assert kinds(pieces) == expected
    assert ended == state


@pytest.mark.parametrize("by", ["ids", "text"])
def test_start_inside_a_channel(by: str) -> None:
    text = f"hm\n{CLOSE}Hi"
    assert kinds(split(text, "thinking", by)[0]) == [("thinking", "hm\n"), ("answer", "Hi")]
    text = f"thought\nhm\n{CLOSE}Hi"
    assert kinds(split(text, "name", by)[0]) == [("thinking", "hm\n"), ("answer", "Hi")]
    assert split("hm", "thinking", by)[1] == "thinking"
    assert kinds(split(f"final\nx{CLOSE}", "name", by)[0]) == [("answer", "x")]


def test_calls_are_parsed() -> None:
    (piece,), _ = split(f"{CALL}call:f{{a:{Q}x{Q},n:1}}{END_CALL}")
    assert piece.call == ToolCall("f", {"a": "x", "n": 1})
    assert piece.error is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{CALL}call:f{{a:{END_CALL}", "malformed"),
        (f"{CALL}nonsense{END_CALL}", "malformed"),
        (f"{CALL}{END_CALL}", "malformed"),
        (f"{CALL}call:f{{a:1", "cut off"),
        (f"{CALL}call:f{{a:1<eos>", "cut off"),
        (f"{CALL}call:f{{a:1{CALL}call:g{{}}{END_CALL}", "cut off"),
        (f"{CALL}call:f{{a:1{OPEN}thought\nx{CLOSE}", "cut off"),
        (f"{CALL}call:f{{a:1{CLOSE}x", "cut off"),
    ],
)
@pytest.mark.parametrize("by", ["ids", "text"])
def test_a_bad_call_is_kept_as_text_and_never_raises(text: str, error: str, by: str) -> None:
    pieces, _ = split(text, by=by)
    bad = next(piece for piece in pieces if piece.kind == "tool_call")
    assert bad.call is None
    assert bad.error is not None
    assert error in bad.error
    assert bad.text in text


@pytest.mark.parametrize("by", ["ids", "text"])
def test_a_complete_call_counts_without_its_closing_mark(by: str) -> None:
    for end in ("", "<eos>", "<|tool_response>", CALL):
        pieces, _ = split(f"{CALL}call:f{{a:1}}{end}", by=by)
        assert pieces[0].call == ToolCall("f", {"a": 1})


def test_marks_spelled_in_plain_text_are_text_when_ids_are_fed() -> None:
    tokenizer = small.tokenizer("library")
    text = f"Say {CLOSE} and {OPEN}thought\n and <turn|>"
    splitter = ChannelSplitter(tokenizer)
    pieces = [*splitter.feed(tokenizer.encode_plain(text)), *splitter.finish()]
    assert kinds(pieces) == [("answer", text)]


def test_other_special_tokens_are_not_said() -> None:
    pieces, _ = split(f"a<mask>b<|think|>c{Q}d<|image|>")
    assert kinds(pieces) == [("answer", "abcd")]
    (piece,), _ = split(f"{CALL}call:f{{a:<mask>{Q}x{Q}}}{END_CALL}")
    assert piece.call == ToolCall("f", {"a": "x"})


def test_a_tokenizer_without_the_marks_finds_them_spelled() -> None:
    tokenizer = small.tokenizer("pieces with space")
    assert tokenizer.token_id(OPEN) is None
    splitter = ChannelSplitter(tokenizer)
    pieces = splitter.feed(tokenizer.encode(f"{OPEN}thought\nhm{CLOSE}Hi <turn|>"))
    # This model turns line breaks into spaces, so the name's line never ends.
    assert kinds([*pieces, *splitter.finish()]) == [("thinking", "hm"), ("answer", "Hi <turn|>")]


def test_state_while_streaming() -> None:
    splitter = ChannelSplitter()
    states = []
    for part in ("<|chan", "nel>tho", "ught\nhm", "<channel|>", "Hi", CALL, "call:f{}", END_CALL):
        splitter.feed(part)
        states.append(splitter.state)
    assert states == [
        *("answer", "thinking", "thinking", "answer", "answer"),
        *("tool_call", "tool_call", "answer"),
    ]


def test_text_and_ids_may_alternate() -> None:
    tokenizer = small.tokenizer("library")
    splitter = ChannelSplitter(tokenizer)
    pieces = splitter.feed("a<|chan")
    pieces += splitter.feed(tokenizer.encode("b"))
    pieces += splitter.feed(CLOSE[:3])
    pieces += splitter.finish()
    assert kinds(pieces) == [("answer", "a<|chanb<ch")]


def test_ids_take_a_tokenizer() -> None:
    with pytest.raises(UsageError, match="tokenizer"):
        ChannelSplitter().feed([1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain  ", "plain  "),
        ("I thought so", "I thought so"),
        (f"{OPEN}thought\nhm\n{CLOSE} Hi ", "Hi"),
        (f"{OPEN}thought\n{CLOSE}Hi", "Hi"),
        (f"thought\nhm\n{CLOSE}Hi", "Hi"),
        (f"Hello\nhm{CLOSE}Hi", "Hi"),
        (f"Hi {OPEN}thought\nhm", "Hi"),
        (f"a{OPEN}thought\nhm{CLOSE}b{OPEN}thought\nhm{CLOSE}c", "abc"),
        (f"{OPEN}thought\nhm{CLOSE}{OPEN}final\nHi{CLOSE}", "Hi"),
        (f"{OPEN}thought\nhm{CLOSE}{CALL}call:f{{}}{END_CALL}", f"{CALL}call:f{{}}{END_CALL}"),
        (CLOSE, ""),
        ("<think>a</think>b", "<think>a</think>b"),
    ],
)
def test_strip_thinking(text: str, expected: str) -> None:
    assert strip_thinking(text) == expected


@pytest.mark.parametrize(
    ("prompt", "state"),
    [
        ("<bos><|turn>model\n", "answer"),
        (f"<|turn>model\n{OPEN}thought\n{CLOSE}", "answer"),
        (f"<|turn>model\n{OPEN}thought\n", "thinking"),
        (f"<|turn>model\n{OPEN}thought\nhm", "thinking"),
        (f"<|turn>model\n{OPEN}", "name"),
        (f"<|turn>model\n{OPEN}final\nHi", "answer"),
        (f"<|turn>model\n{OPEN}thought\n<turn|>\n<|turn>user\nx", "answer"),
        ("", "answer"),
    ],
)
def test_channel_state(prompt: str, state: str) -> None:
    tokenizer = small.tokenizer("library")
    assert channel_state(tokenizer, tokenizer.encode(prompt)) == state
