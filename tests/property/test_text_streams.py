"""Whatever the ids and however they are cut: the stream says what the whole says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_diffusiongemma.text.channels import ChannelSplitter, Piece, State, ToolCall
from mlx_diffusiongemma.text.detokenize import Detokenizer
from tests.unit.text import small

MARKS = ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>")
ENDS = ("<eos>", "<turn|>", "<|tool_response>", "<pad>")


def cut(items: Any, places: Sequence[int]) -> list[Any]:
    borders = [0, *sorted(place % (len(items) + 1) for place in places), len(items)]
    return [items[a:b] for a, b in pairwise(borders)]


def ids_of(kind: str) -> st.SearchStrategy[list[int]]:
    """Ids from the whole vocabulary, with many bytes, special tokens and spaces among them."""
    tokenizer = small.tokenizer(kind)
    every = small.vocabulary(kind)
    octets = [token for token in every if tokenizer.is_byte(token)]
    euro = [tokenizer.token_id(f"<0x{octet:02X}>") for octet in "€".encode()]
    likely = [*sorted(tokenizer.special_ids), *(token for token in euro if token is not None)]
    space = tokenizer.token_id("▁")
    one = st.one_of(
        st.sampled_from(every),
        st.sampled_from(octets),
        st.sampled_from(likely),
        st.just(space if space is not None else 0),
    )
    return st.lists(one, max_size=40)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("kind", small.KINDS)
@given(data=st.data())
@settings(max_examples=50)
def test_streamed_text_is_the_decoded_text(kind: str, skip: bool, data: st.DataObject) -> None:
    tokenizer = small.tokenizer(kind)
    ids = data.draw(ids_of(kind))
    places = data.draw(st.lists(st.integers(0, 40), max_size=12))
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    text = "".join([*(detokenizer.add(part) for part in cut(ids, places)), detokenizer.finish()])
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("kind", small.KINDS)
@given(data=st.data())
@settings(max_examples=50)
def test_one_id_at_a_time(kind: str, data: st.DataObject) -> None:
    tokenizer = small.tokenizer(kind)
    ids = data.draw(ids_of(kind))
    detokenizer = Detokenizer(tokenizer)
    assert "".join([*(detokenizer.add([i]) for i in ids), detokenizer.finish()]) == (
        tokenizer.decode(ids)
    )


@pytest.mark.parametrize("kind", ["library", "pieces"])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_any_text_comes_back(kind: str, text: str) -> None:
    tokenizer = small.tokenizer(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    plain = tokenizer.encode_plain(text)
    assert tokenizer.decode(plain) == text
    assert tokenizer.special_ids.isdisjoint(plain)


@given(data=st.data())
def test_marks_as_text_come_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["library", "pieces"]))
    tokenizer = small.tokenizer(kind)
    parts = st.sampled_from(
        [*tokenizer.special_tokens, "<", "|", ">", "a", " ", "\n", "é", "<|tur"]
    )
    text = "".join(data.draw(st.lists(parts, max_size=12)))
    plain = tokenizer.encode_plain(text)
    assert tokenizer.decode(plain) == text
    assert tokenizer.special_ids.isdisjoint(plain)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def everything(pieces: Sequence[Piece]) -> list[tuple[str, str, ToolCall | None, str | None]]:
    """Pieces with neighbours of one kind joined."""
    merged: list[tuple[str, str, ToolCall | None, str | None]] = []
    for piece in pieces:
        if merged and merged[-1][0] == piece.kind != "tool_call":
            merged[-1] = (piece.kind, merged[-1][1] + piece.text, None, None)
        else:
            merged.append((piece.kind, piece.text, piece.call, piece.error))
    return merged


# Pieces of outputs a confused model might write.
SNIPPETS = st.lists(
    st.sampled_from(
        [
            *MARKS,
            *ENDS,
            *("thought\n", "thought", "thou", "final\n", "\n", " ", "hello", "call:f{", "a:1", "}"),
            *('<|"|>', "<", "|", ">", "€", "<think>", "x" * 20, "<|chan", "nel>", "call:f{a:1}"),
        ]
    ),
    max_size=14,
)
STARTS: st.SearchStrategy[State] = st.sampled_from(["answer", "thinking", "name"])
PLACES = st.lists(st.integers(0, 200), max_size=12)


@given(snippets=SNIPPETS, places=PLACES, start=STARTS)
@settings(max_examples=200)
def test_text_splits_alike_wherever_it_is_cut(
    snippets: list[str], places: list[int], start: State
) -> None:
    text = "".join(snippets)
    whole = ChannelSplitter(start=start)
    expected = everything([*whole.feed(text), *whole.finish()])
    parts = ChannelSplitter(start=start)
    found = [piece for part in cut(text, places) for piece in parts.feed(part)]
    assert everything([*found, *parts.finish()]) == expected
    assert parts.state == whole.state


@pytest.mark.parametrize("kind", small.KINDS)
@given(data=st.data(), places=PLACES, start=STARTS)
@settings(max_examples=50)
def test_ids_split_alike_wherever_they_are_cut(
    kind: str, data: st.DataObject, places: list[int], start: State
) -> None:
    tokenizer = small.tokenizer(kind)
    written = tokenizer.encode("".join(data.draw(SNIPPETS)))
    ids = [*written, *data.draw(ids_of(kind)), *written]
    whole = ChannelSplitter(tokenizer, start=start)
    expected = everything([*whole.feed(ids), *whole.finish()])
    parts = ChannelSplitter(tokenizer, start=start)
    found = [piece for part in cut(ids, places) for piece in parts.feed(part)]
    assert everything([*found, *parts.finish()]) == expected
    assert parts.state == whole.state


@given(data=st.data())
def test_without_marks_the_answer_is_the_decoded_text(data: st.DataObject) -> None:
    tokenizer = small.tokenizer("library")
    ids = [i for i in data.draw(ids_of("library")) if i not in tokenizer.special_ids]
    splitter = ChannelSplitter(tokenizer)
    pieces = [*splitter.feed(ids), *splitter.finish()]
    assert "".join(piece.text for piece in pieces) == tokenizer.decode(ids)


@given(snippets=SNIPPETS)
def test_ids_and_text_agree(snippets: list[str]) -> None:
    """As long as no mark is cut into pieces that only the text joins up again."""
    tokenizer = small.tokenizer("library")
    text = "".join(snippets)
    by_ids, by_text = ChannelSplitter(tokenizer), ChannelSplitter()
    # Outside calls ids drop the quote token, which text cannot tell from a written one.
    if '<|"|>' in text:
        return
    assert everything([*by_ids.feed(tokenizer.encode(text)), *by_ids.finish()]) == everything(
        [*by_text.feed(text), *by_text.finish()]
    )


@pytest.mark.parametrize("kind", ["library", "pieces"])
def test_long_outputs_take_linear_time(kind: str) -> None:
    """Ten times the tokens, one at a time: well under a hundred times the time."""
    tokenizer = small.tokenizer(kind)
    octet = tokenizer.token_id("<0xE2>")
    assert octet is not None
    for ids in (tokenizer.encode("hello world ") * 200, [octet] * 800):
        taken = []
        for times in (1, 10):
            splitter = ChannelSplitter(tokenizer)
            began = process_time()
            for token in ids * times:
                splitter.feed([token])
            splitter.finish()
            taken.append(process_time() - began)
        assert taken[1] < 40 * taken[0] + 0.05
