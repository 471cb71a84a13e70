"""Both tokenizer kinds: ids, special tokens as text, decoding, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken

from mlx_diffusiongemma.errors import ModelError, UsageError
from mlx_diffusiongemma.text.backend_tokenizers import _library_errors
from mlx_diffusiongemma.text.tokenizer import Tokenizer, load_tokenizer, require_ids_below
from tests.unit.text import small

GEMMA_LIKE = ("library", "pieces")
TEXTS = (
    "",
    " ",
    "hello world",
    "  two spaces\n\n\ttab ",
    "日本 é ß 👩‍👩‍👧 \x00",
    "a < b | c > d",
    "<|tur n> <turn> |> <|",
)


@pytest.mark.parametrize("kind", GEMMA_LIKE)
@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_exactly(kind: str, text: str) -> None:
    tokenizer = small.tokenizer(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_plain(text) == ids
    assert tokenizer.encode_marked(text, range(len(text))) == ids


@pytest.mark.parametrize("kind", GEMMA_LIKE)
def test_no_begin_token_is_added(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    assert tokenizer.token_id("<bos>") == 2
    assert 2 not in tokenizer.encode("hello")


@pytest.mark.parametrize("kind", GEMMA_LIKE)
@pytest.mark.parametrize("mark", ["<|turn>", "<turn|>", "<bos>", "<eos>", "<mask>", "<|channel>"])
def test_special_tokens_are_found_or_spelled(kind: str, mark: str) -> None:
    tokenizer = small.tokenizer(kind)
    text = f"hello{mark}world {mark}\n"
    token = tokenizer.special_tokens[mark]
    ids = tokenizer.encode(text)
    assert ids.count(token) == 2
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "helloworld \n"
    plain = tokenizer.encode_plain(text)
    assert tokenizer.special_ids.isdisjoint(plain)
    assert tokenizer.decode(plain) == text
    # What stands around it keeps its ids.
    first = ids.index(token)
    assert plain[:first] == ids[:first]


@pytest.mark.parametrize("kind", GEMMA_LIKE)
def test_only_marked_occurrences_are_spelled(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    text = "é<turn|>x<turn|>y<turn|>"
    token = tokenizer.special_tokens["<turn|>"]
    second = text.index("<", 3)
    for position in range(second, second + len("<turn|>")):
        ids = tokenizer.encode_marked(text, [position])
        assert ids.count(token) == 2
        assert tokenizer.decode(ids) == text
    assert tokenizer.encode_marked(text, [0, second + 7]) == tokenizer.encode(text)


@pytest.mark.parametrize("kind", GEMMA_LIKE)
def test_overlapping_starts_and_longest_match(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    for text in ("<<|turn>", "<|turn><|turn>", "<|tool_call><|tool>", "<turn|><turn|"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        plain = tokenizer.encode_plain(text)
        assert tokenizer.decode(plain) == text
        assert tokenizer.special_ids.isdisjoint(plain)


@pytest.mark.parametrize("kind", GEMMA_LIKE)
def test_newline_is_ordinary_text(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    (newline,) = tokenizer.encode("\n")
    assert newline not in tokenizer.special_ids
    assert tokenizer.encode_plain("a\nb") == tokenizer.encode("a\nb")
    assert tokenizer.decode([newline], skip_special_tokens=True) == "\n"


def test_harmless_added_pieces_keep_their_ids() -> None:
    tokenizer = small.tokenizer("pieces")
    (table,) = tokenizer.encode("<table>")
    assert tokenizer.encode_plain("<table>") == [table]


def test_real_ids_of_gemma() -> None:
    tokenizer = small.tokenizer("library")
    for token, text in small.SPECIAL.items():
        assert tokenizer.token_id(text) == token
        assert tokenizer.encode(text) == [token]
    assert tokenizer.eos_token_ids == (1,)
    assert tokenizer.token_id("<|video|>") is None
    assert tokenizer.id_to_token(107) == "\n"


@pytest.mark.parametrize("kind", small.KINDS)
def test_ids_without_a_token_decode_to_nothing(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    ids = tokenizer.encode("hello world")
    assert tokenizer.decode([*ids, tokenizer.vocab_size + 5, 2**40]) == tokenizer.decode(ids)
    assert tokenizer.id_to_token(tokenizer.vocab_size + 5) is None
    assert tokenizer.id_to_token(-1) is None
    assert tokenizer.id_to_token(2**40) is None
    assert tokenizer.token_id("no such token") is None


@pytest.mark.parametrize("kind", small.KINDS)
def test_bad_ids_and_texts_are_refused(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    with pytest.raises(UsageError, match="negative"):
        tokenizer.decode([1, -1])
    with pytest.raises(UsageError, match="whole number"):
        tokenizer.decode([1.5])  # type: ignore[list-item]
    for encode in (tokenizer.encode, tokenizer.encode_plain):
        with pytest.raises(UsageError, match="surrogate"):
            encode("a\ud800b")


def test_numpy_ids_are_welcome() -> None:
    tokenizer = small.tokenizer("library")
    ids = np.array(tokenizer.encode("hello world"), dtype=np.uint32)
    assert tokenizer.decode(ids) == "hello world"  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["pieces", "pieces with space"])
def test_pieces_decode_as_sentencepiece_does(kind: str) -> None:
    tokenizer = small.tokenizer(kind)
    model = tokenizer._model  # type: ignore[attr-defined]
    for text in TEXTS:
        ids = model.encode(text)
        assert tokenizer.decode(ids) == model.decode(ids)
        assert tokenizer.encode(text) == ids


def test_ids_past_the_models_vocabulary_are_refused_when_used() -> None:
    tokenizer = small.tokenizer("library")
    require_ids_below([1, 2], 3, tokenizer)
    with pytest.raises(UsageError, match=r"'<turn\|>' \(id 106\)"):
        require_ids_below([1, 106], 100, tokenizer)


def test_tokens_named_only_by_the_config_become_special(tmp_path: Path) -> None:
    folder = small.write_library_folder(tmp_path)
    raw = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    raw["added_tokens"] = [t for t in raw["added_tokens"] if t["content"] != "<|turn>"]
    for token in raw["added_tokens"]:
        if token["content"] == "<turn|>":
            token["special"] = False
    (folder / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("<|turn>a<turn|>") == small.tokenizer("library").encode(
        "<|turn>a<turn|>"
    )
    assert {105, 106} <= tokenizer.special_ids
    assert tokenizer.special_ids.isdisjoint(tokenizer.encode_plain("<|turn>a<turn|>"))


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    library = small.library_tokenizer()
    library.enable_truncation(3)
    library.enable_padding(length=64)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode("hello world hello world")) == (
        "hello world hello world"
    )


def test_a_word_list_lookup_cannot_make_plain_text_special(tmp_path: Path) -> None:
    """A BPE that looks whole words up would find "<turn|>" in its vocabulary."""
    library = small.library_tokenizer()
    raw = json.loads(library.to_str())
    raw["model"]["ignore_merges"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    plain = tokenizer.encode_plain("<turn|>")
    assert 106 not in plain
    assert tokenizer.decode(plain) == "<turn|>"


def test_white_space_beside_a_greedy_token_is_kept(tmp_path: Path) -> None:
    library = small.library_tokenizer()
    library.add_special_tokens([AddedToken("<|x|>", special=True, lstrip=True, rstrip=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode_plain("a <|x|> b")) == "a <|x|> b"


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither tokenizer\.json nor tokenizer\.model") as info:
        load_tokenizer(tmp_path)
    assert info.value.hint


DAMAGED = {
    "empty": b"",
    "cut": b'{"version": "1.0", "model"',
    "list": b"[]",
    "no model": b"{}",
    "binary": bytes(range(256)),
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
    "merge without token": (
        b'{"version":"1.0","model":{"type":"BPE","vocab":{},"merges":[["a","b"]]}}'
    ),
}


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_tokenizer_files(tmp_path: Path, name: str, damage: str) -> None:
    (tmp_path / name).write_bytes(DAMAGED[damage])
    with pytest.raises(ModelError, match=name) as info:
        load_tokenizer(tmp_path)
    assert "\n" not in info.value.message
    assert info.value.message.endswith(".")
    assert info.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"added_tokens_decoder": []}',
        '{"added_tokens_decoder": {"x": "y"}}',
        "[" * 9**5,
    ],
)
def test_damaged_tokenizer_config(tmp_path: Path, text: str) -> None:
    folder = small.write_library_folder(tmp_path)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json"):
        load_tokenizer(folder)


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(ModelError, match="cannot be read"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (1,)),
        ({"eos_token": "<turn|>"}, (106,)),
        ({"eos_token": ["<eos>", "<turn|>"]}, (1, 106)),
        ({"eos_token": {"content": "<turn|>"}}, (106,)),
        ({"eos_token": None}, ()),
        ({"eos_token": "<no such token>"}, ()),
    ],
)
def test_declared_end_tokens(
    tmp_path: Path, config: dict[str, object], expected: tuple[int, ...]
) -> None:
    folder = small.write_library_folder(tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert load_tokenizer(folder).eos_token_ids == expected


def test_tokenizer_json_is_preferred(tmp_path: Path) -> None:
    small.write_piece_folder(tmp_path)
    small.write_library_folder(tmp_path)
    assert load_tokenizer(tmp_path).token_id("<turn|>") == 106


def test_the_config_renames_reserved_pieces(tmp_path: Path) -> None:
    folder = small.write_piece_folder(tmp_path)
    old = load_tokenizer(folder)
    reserved = old.token_id("<unused7>")
    assert reserved is not None
    config = {
        "eos_token": "<|end|>",
        "added_tokens_decoder": {str(reserved): {"content": "<|end|>", "special": True}},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer: Tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("a<|end|>b").count(reserved) == 1
    assert tokenizer.decode([reserved]) == "<|end|>"
    assert tokenizer.eos_token_ids == (reserved,)
    assert tokenizer.token_id("<unused7>") is None
    for text in ("<|end|>", "<unused7>"):
        plain = tokenizer.encode_plain(text)
        assert reserved not in plain
        assert tokenizer.decode(plain) == text


def test_a_wish_to_stop_is_no_damaged_file() -> None:
    """The command line raises a BaseException of its own on SIGTERM, wherever it arrives."""

    class Stop(BaseException):
        pass

    with pytest.raises(Stop), _library_errors("tokenizer.json cannot be read"):
        raise Stop
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ModelError, match="cannot be read"), _library_errors("x cannot be read"):
        raise panic("index out of range")
