"""Reads which tokens tokenizer_config.json names and calls special; it builds no tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlx_diffusiongemma.errors import ModelError
from mlx_diffusiongemma.text.files import GET_AGAIN, is_there, read_json_object

FILE_NAME = "tokenizer_config.json"
# What Gemma calls its basic tokens: used where the file is absent or does not name them.
GEMMA_NAMES = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}
# Lists (or maps) of further special tokens, under the names transformers has used over time.
EXTRA_KEYS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")


@dataclass(frozen=True)
class TokenizerConfig:
    """What tokenizer_config.json declares.

    `named` maps names such as "bos_token" to token text, `eos_tokens` are the end tokens, `special`
    every text the file calls special, and `by_id` the texts it gives to ids (added_tokens_decoder).
    """

    named: Mapping[str, str] = field(default_factory=dict)
    eos_tokens: tuple[str, ...] = ()
    special: frozenset[str] = frozenset()
    by_id: Mapping[int, str] = field(default_factory=dict)
    chat_template: Any = None


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """The declarations of a model folder; Gemma's usual names where the file is absent."""
    path = folder / FILE_NAME
    return parse_tokenizer_config(read_json_object(path) if is_there(path) else {})


def parse_tokenizer_config(raw: Mapping[str, Any]) -> TokenizerConfig:
    """The declarations of a tokenizer_config.json object; ModelError on a value of a wrong kind."""
    named = dict(GEMMA_NAMES)
    for key, value in raw.items():
        if not key.endswith("_token"):
            continue
        text = _token_text(value)
        if text is not None:
            named[key] = text
        elif value is None:
            named.pop(key, None)
    eos = raw.get("eos_token")
    if isinstance(eos, list):
        eos_tokens = tuple(text for item in eos if (text := _token_text(item)))
        named["eos_token"] = eos_tokens[0] if eos_tokens else GEMMA_NAMES["eos_token"]
    else:
        eos_tokens = (named["eos_token"],) if "eos_token" in named else ()
    special = set(named.values()) | set(eos_tokens)
    for key in EXTRA_KEYS:
        special.update(_texts(raw.get(key)))
    by_id: dict[int, str] = {}
    for number, text, is_special in _added_tokens(raw.get("added_tokens_decoder")):
        by_id[number] = text
        if is_special:
            special.add(text)
    return TokenizerConfig(
        named=named,
        eos_tokens=eos_tokens,
        special=frozenset(text for text in special if text.strip()),
        by_id=by_id,
        chat_template=raw.get("chat_template"),
    )


def _token_text(value: Any) -> str | None:
    """A token is written as its text, or as an object with the text under "content"."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            if text := _token_text(item):
                yield text


def _added_tokens(value: Any) -> Iterator[tuple[int, str, bool]]:
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ModelError(f"added_tokens_decoder in {FILE_NAME} is not an object.", GET_AGAIN)
    for key, item in value.items():
        text = _token_text(item)
        if not key.isascii() or not key.isdigit() or len(key) > 9 or text is None:
            raise ModelError(
                f"added_tokens_decoder in {FILE_NAME} has a damaged entry {str(key)[:40]!r}.",
                GET_AGAIN,
            )
        yield int(key), text, isinstance(item, Mapping) and bool(item.get("special", False))
