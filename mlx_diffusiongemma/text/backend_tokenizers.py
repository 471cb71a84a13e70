"""tokenizer.json through the `tokenizers` library; which file to open is left to tokenizer.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from mlx_diffusiongemma.errors import DiffusionGemmaError, ModelError
from mlx_diffusiongemma.text.files import GET_AGAIN, one_line, read_bytes
from mlx_diffusiongemma.text.tokenizer import IsPlain, Tokenizer, end_token_ids, looks_special
from mlx_diffusiongemma.text.tokenizer_config import TokenizerConfig

_PANIC = "PanicException"  # pyo3's, which cannot be imported
# The library takes any six characters of this form for a byte, "+F" included.
_BYTE = re.compile(r"<0x[0-9A-Fa-f+][0-9A-Fa-f]>")


def open_tokenizer_json(path: Path, config: TokenizerConfig) -> LibraryTokenizer:
    """Open a tokenizer.json; ModelError with the library's reason when it is damaged."""
    data = read_bytes(path)
    with _library_errors(f"{path.name} cannot be read"):
        library = Library.from_buffer(data)
    with _library_errors(f"{path.name} cannot be used"):
        return LibraryTokenizer(library, config)


@contextmanager
def _library_errors(what: str) -> Iterator[None]:
    """One sentence for what the library raises: bare Exception, and BaseException for a panic."""
    try:
        yield
    except DiffusionGemmaError:
        raise
    except BaseException as error:
        # Any other BaseException is somebody's wish to stop: Ctrl-C, a signal, an exit.
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        raise ModelError(f"{what}: {one_line(str(error))}.", GET_AGAIN) from error


class LibraryTokenizer(Tokenizer):
    """A tokenizer.json."""

    def __init__(self, library: Library, config: TokenizerConfig) -> None:
        # A file saved by a trainer may cut or pad every text it encodes.
        library.no_truncation()
        library.no_padding()
        self._library = library
        special = _promote_special(library, config)
        unknown = config.named.get("unk_token")
        unknown_id = None if unknown is None else library.token_to_id(unknown)
        last_added = max(library.get_added_tokens_decoder(), default=-1)
        super().__init__(
            special_tokens=special,
            eos_token_ids=end_token_ids(config, library.token_to_id),
            unknown_id=unknown_id,
            vocab_size=max(library.get_vocab_size(with_added_tokens=True), last_added + 1),
        )
        self._anchor, self._anchor_text = self._find_anchor()
        self.decodes_in_parts = self._anchor is not None and _is_part_by_part(library.decoder)

    def _encode(self, text: str, plain: IsPlain | None) -> list[int]:
        with _library_errors("tokenizer.json fails to encode a text"):
            encoding = self._library.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if plain is None or self.special_ids.isdisjoint(ids):
            return ids
        result: list[int] = []
        done = 0
        for at, token in enumerate(ids):
            if token not in self.special_ids:
                continue
            start, end = encoding.token_to_chars(at) or (0, 0)
            # The unknown token mostly stands for a character that has none.
            if token not in self.control_ids and text[start:end] not in self.special_tokens:
                continue
            if plain(start, end):
                result.extend(ids[done:at])
                result.extend(self.plain_form(text[start:end]))
                done = at + 1
        return [*result, *ids[done:]]

    def _natural_form(self, text: str) -> list[int]:
        if self._library.normalizer is not None:
            text = self._library.normalizer.normalize_str(text)
        parts = [text]
        if self._library.pre_tokenizer is not None:
            parts = [part for part, _ in self._library.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for part in parts for token in self._library.model.tokenize(part)]

    def _decode(self, ids: list[int]) -> str:
        if not ids:
            return ""  # some decoders panic on it
        with _library_errors("tokenizer.json fails to decode ids"):
            return str(self._library.decode(ids, skip_special_tokens=False))

    def _decode_more(self, ids: list[int]) -> str:
        if self._anchor is None or not ids:
            return self._decode(ids)
        return self._decode([self._anchor, *ids])[len(self._anchor_text) :]

    def _is_byte(self, token: int) -> bool:
        text = self.id_to_token(token)
        return text is not None and _BYTE.fullmatch(text) is not None

    def token_id(self, text: str) -> int | None:
        found: int | None = self._library.token_to_id(text)
        return found

    def id_to_token(self, token: int) -> str | None:
        if not 0 <= token < 2**32:
            return None
        found: str | None = self._library.id_to_token(token)
        return found

    def _find_anchor(self) -> tuple[int | None, str]:
        """A token with visible text, to stand before ids that continue a text."""
        for token in [*sorted(self.special_ids), *range(min(self.vocab_size, 4096))]:
            text = self.id_to_token(token)
            if text is not None and _BYTE.fullmatch(text) is None:
                shown = self._decode([token])
                if shown and not shown[0].isspace() and not shown[-1].isspace():
                    return token, shown
        return None, ""


def _promote_special(library: Library, config: TokenizerConfig) -> dict[str, int]:
    """Special tokens by text, after making special in the library what only its config names."""
    added = {token.content: token for token in library.get_added_tokens_decoder().values()}
    special = {text for text, token in added.items() if token.special or looks_special(text)}
    special.update(text for text in config.special if library.token_to_id(text) is not None)
    special = {text for text in special if text.strip()}
    missing = sorted(special - set(added))
    if missing:
        library.add_special_tokens(
            [AddedToken(text, special=True, normalized=False) for text in missing]
        )
    ids = ((text, library.token_to_id(text)) for text in sorted(special))
    return {text: token for text, token in ids if token is not None}


def _is_part_by_part(decoder: Any) -> bool:
    """Whether a decoder works token by token and byte run by byte run, but for the text's start."""
    if decoder is None:
        return True
    try:
        state = json.loads(decoder.__getstate__())
    except (AttributeError, TypeError, ValueError):
        return False
    steps = state.get("decoders", []) if state.get("type") == "Sequence" else [state]
    fused = False
    for step in steps:
        kind = step.get("type")
        if kind == "Fuse":
            fused = True
        elif kind == "Strip":
            # After the fuse it strips the whole text: fine in front, not at the end.
            if fused and step.get("stop", 0) != 0:
                return False
        elif kind == "Replace":
            pattern = step.get("pattern", {}).get("String")
            if fused and (pattern is None or len(pattern) != 1):
                return False
        elif kind not in ("ByteFallback", "Metaspace"):
            return False
    return True
