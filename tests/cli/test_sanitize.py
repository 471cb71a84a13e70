"""What reaches a terminal, at every way of cutting the text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mlx_diffusiongemma.cli.sanitize import escape_json, one_line, sanitize

DROPPED = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ud800\udfff",
]
KEPT = "\n\t aZ~\u00a0\u00e9\ud55c\U0001f468\u200d\U0001f469\ufe0f\u200b\u2028"


def test_every_dangerous_character_is_dropped() -> None:
    for character in DROPPED:
        expected = "ab" if character not in "\n\t" else f"a{character}b"
        assert sanitize(f"a{character}b") == expected


def test_ordinary_text_is_untouched() -> None:
    assert sanitize(KEPT) == KEPT


@given(st.text(), st.text())
def test_text_may_be_filtered_in_pieces(one: str, two: str) -> None:
    assert sanitize(one) + sanitize(two) == sanitize(one + two)


@given(st.text())
def test_messages_have_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value(text: str) -> None:
    document = escape_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(document) == {"text": text}
    assert sanitize(document) == document
