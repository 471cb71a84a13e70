"""Incremental decoding: what is held back and when it comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

from mlx_diffusiongemma.text.detokenize import Detokenizer
from mlx_diffusiongemma.text.tokenizer import Tokenizer, load_tokenizer
from tests.unit.text import small


def octets(tokenizer: Tokenizer, data: bytes) -> list[int]:
    ids = [tokenizer.token_id(f"<0x{octet:02X}>") for octet in data]
    return [token for token in ids if token is not None]


@pytest.mark.parametrize("kind", ["library", "pieces"])
def test_ordinary_tokens_come_out_at_once(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode("hello world")
    shown = [detokenizer.add([token]) for token in ids]
    assert "" not in shown
    assert "".join(shown) == "hello world"
    assert detokenizer.finish() == ""


@pytest.mark.parametrize("kind", ["library", "pieces"])
def test_a_run_of_bytes_waits_for_its_end(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    detokenizer = Detokenizer(tokenizer)
    hello = tokenizer.encode("hello")
    assert [detokenizer.add([i]) for i in octets(tokenizer, "€a".encode())] == [""] * 4
    assert detokenizer.add(hello) == "€ahello"
    assert detokenizer.add(octets(tokenizer, "👍".encode())) == ""
    assert detokenizer.finish() == "👍"


def test_one_bad_byte_spoils_the_run_but_nothing_shown() -> None:
    """The library turns a whole run into replacement characters, earlier valid bytes too."""
    tokenizer = small.tokenizer("library")
    ids = [*tokenizer.encode("hello"), *octets(tokenizer, "€".encode() + b"\xff")]
    assert tokenizer.decode(ids) == "hello" + "\ufffd" * 4
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.add([i]) for i in ids[-5:]] == ["hello", "", "", "", ""]
    assert detokenizer.finish() == "\ufffd" * 4


@pytest.mark.parametrize("kind", small.KINDS)
def test_first_space(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    for text in (" hello", "  hello", " ", "hello  world ", "<bos> hello", "<eos>hello"):
        ids = tokenizer.encode(text)
        detokenizer = Detokenizer(tokenizer)
        shown = "".join(detokenizer.add([token]) for token in ids) + detokenizer.finish()
        assert shown == tokenizer.decode(ids)


def test_skipping_special_tokens_joins_the_bytes_around_them() -> None:
    tokenizer = small.tokenizer("library")
    euro = octets(tokenizer, "€".encode())
    ids = [euro[0], 4, *euro[1:]]
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=True)
    assert detokenizer.add(ids) + detokenizer.finish() == "€"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "€"
    assert tokenizer.decode(ids) == "\ufffd<mask>\ufffd\ufffd"


def test_flush_marks_a_border() -> None:
    tokenizer = small.tokenizer("library with space")
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.flush() == ""
    # Something stood here, so the space is no longer the text's first.
    assert detokenizer.add(tokenizer.encode("hello")) == " hello"


DECODERS: dict[str, Any] = {
    "byte level": decoders.ByteLevel(),
    "word pieces": decoders.WordPiece(),
    "none": None,
    "metaspace": decoders.Metaspace(),
    "strips its end": decoders.Sequence([decoders.Fuse(), decoders.Strip("c", 0, 1)]),
    "replaces afterwards": decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "x")]),
    "replaces one afterwards": decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", " ")]),
}


@pytest.mark.parametrize("name", DECODERS)
def test_other_decoders_end_with_the_same_text(tmp_path: Path, name: str) -> None:
    """Those that work on the whole text give nothing before the end."""
    words = ["a", "b", "c", "##d", "▁", "▁a", "Ã", "©", "Ġa", ".", "<0x41>", " ", "ab"]
    library = Library(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="a"))
    if DECODERS[name] is not None:
        library.decoder = DECODERS[name]
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    streams = name in ("none", "metaspace", "replaces one afterwards")
    assert tokenizer.decodes_in_parts is streams
    for ids in ([4, 5, 0, 1, 6, 7, 8, 3, 9, 10, 2], [5], [4, 4, 5], [0, 1, 2], [11, 12, 9], []):
        detokenizer = Detokenizer(tokenizer)
        shown = [detokenizer.add([token]) for token in ids]
        assert streams or not any(shown)
        assert "".join([*shown, detokenizer.finish()]) == tokenizer.decode(ids)
