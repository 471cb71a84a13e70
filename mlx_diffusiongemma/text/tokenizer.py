"""Words to token ids and back: the common face of both tokenizer kinds, and the choice of one.

The kinds themselves live in backend_tokenizers.py and backend_sentencepiece.py, incremental
decoding in detokenize.py, chat prompts in chat.py.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from pathlib import Path

from mlx_diffusiongemma.errors import ModelError, UsageError
from mlx_diffusiongemma.text.files import is_there
from mlx_diffusiongemma.text.tokenizer_config import TokenizerConfig, read_tokenizer_config

TOKENIZER_JSON = "tokenizer.json"
TOKENIZER_MODEL = "tokenizer.model"

# Says whether the special token written at text[start:end] is to be read as ordinary text.
IsPlain = Callable[[int, int], bool]

_SURROGATE = re.compile("[\ud800-\udfff]")
# A token that is written like a control mark, whatever its file says: <|turn>, <turn|>, <|image|>.
_LOOKS_SPECIAL = re.compile(
    r"<\|[^\s<>]+>|<[^\s<>]+\|>|<(?:pad|bos|eos|unk|mask)>|<(?:start|end)_of_\w+>"
)


class Tokenizer(ABC):
    """What the rest of the runtime may ask of a tokenizer.

    Special tokens are those the files mark as special, plus added tokens written like a control
    mark. Tokens of white space alone ("\\n") never count as special: they are ordinary text.
    """

    def __init__(
        self,
        special_tokens: Mapping[str, int],
        eos_token_ids: tuple[int, ...],
        unknown_id: int | None,
        vocab_size: int,
    ) -> None:
        self.special_tokens: Mapping[str, int] = dict(special_tokens)  # text -> id
        self.special_ids: frozenset[int] = frozenset(special_tokens.values())
        self.eos_token_ids = eos_token_ids  # as tokenizer_config.json declares them
        self.vocab_size = vocab_size  # one past the largest id in use
        # Whether decoding parts and joining them gives the same as decoding the whole.
        self.decodes_in_parts = True
        # The unknown token also stands for characters of ordinary text, so it is no control mark.
        self.control_ids: frozenset[int] = self.special_ids - {unknown_id}
        self._unknown_id = unknown_id
        self._plain_forms: dict[str, list[int]] = {}
        self._byte_ids: dict[int, bool] = {}

    # -- text to ids

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens written in it become special ids, and no <bos> is added."""
        return self._encode(_checked_text(text), None)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text in which nothing is special: "<turn|>" is encoded as its characters."""
        return self._encode(_checked_text(text), lambda start, end: True)

    def encode_marked(self, text: str, foreign: Sequence[int]) -> list[int]:
        """Ids of a text in which a special token that touches a foreign position is ordinary text.

        `foreign` holds character positions in rising order. Everything else gets the ids `encode`
        gives it.
        """
        return self._encode(_checked_text(text), _touches(foreign))

    @abstractmethod
    def _encode(self, text: str, plain: IsPlain | None) -> list[int]:
        """Ids of a checked text; occurrences of special tokens for which `plain` holds are text."""

    def plain_form(self, text: str) -> list[int]:
        """Ids that spell a special token's text without any special id."""
        known = self._plain_forms.get(text)
        if known is None:
            known = self._natural_form(text)
            if self.control_ids.intersection(known) or self._decode_more(known) != text:
                known = self._spelled_form(text)
            self._plain_forms[text] = known
        return list(known)

    @abstractmethod
    def _natural_form(self, text: str) -> list[int]:
        """Ids the tokenizer's model itself gives to a text, when special tokens are left aside."""

    def _spelled_form(self, text: str) -> list[int]:
        """Ids of a text one character at a time: the character, or its bytes, or unknown."""
        ids: list[int] = []
        for character in text:
            own = self.token_id("▁" if character == " " else character)
            if own is not None and own not in self.special_ids:
                ids.append(own)
                continue
            octets = [self.token_id(f"<0x{octet:02X}>") for octet in character.encode()]
            if None not in octets:
                ids.extend(octet for octet in octets if octet is not None)
            elif self._unknown_id is not None:
                ids.append(self._unknown_id)
        return ids

    # -- ids to text

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of ids. Ids without a token decode to nothing, as in the reference tokenizers.

        No clean-up of spaces is done. UsageError when an id is negative or not a whole number.
        """
        return self._decode(self.kept_ids(ids, skip_special_tokens=skip_special_tokens))

    def kept_ids(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> list[int]:
        """The ids that decode to something, as plain ints."""
        skipped = self.special_ids if skip_special_tokens else frozenset()
        return [
            i for i in map(_checked_id, ids) if i not in skipped and self.id_to_token(i) is not None
        ]

    def decode_more(self, ids: Sequence[int]) -> str:
        """Text that ids add when other text stands before them (no space is stripped)."""
        return self._decode_more(self.kept_ids(ids))

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """Text of ids that all have a token, from the start of a text."""

    @abstractmethod
    def _decode_more(self, ids: list[int]) -> str:
        """Text of ids that all have a token, in the middle of a text."""

    def is_byte(self, token: int) -> bool:
        """Whether an id is one byte of a character: runs of them are decoded as a whole."""
        known = self._byte_ids.get(token)
        if known is None:
            known = self._byte_ids[token] = self._is_byte(token)
        return known

    @abstractmethod
    def _is_byte(self, token: int) -> bool: ...

    # -- the table

    @abstractmethod
    def token_id(self, text: str) -> int | None:
        """Id of a token given by its exact text, or None."""

    @abstractmethod
    def id_to_token(self, token: int) -> str | None:
        """The token's own text (with ▁ for spaces), or None when there is no such id."""


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder: tokenizer.json, or else tokenizer.model.

    ModelError when neither is there, or when the file or tokenizer_config.json is damaged.
    """
    folder = Path(folder)
    config = read_tokenizer_config(folder)
    if is_there(path := folder / TOKENIZER_JSON):
        from mlx_diffusiongemma.text.backend_tokenizers import open_tokenizer_json

        return open_tokenizer_json(path, config)
    if is_there(path := folder / TOKENIZER_MODEL):
        from mlx_diffusiongemma.text.backend_sentencepiece import open_tokenizer_model

        return open_tokenizer_model(path, config)
    raise ModelError(
        f"{folder} has neither {TOKENIZER_JSON} nor {TOKENIZER_MODEL}.",
        f"Copy {TOKENIZER_JSON} from the model's repository into the folder.",
    )


def require_ids_below(ids: Iterable[int], vocab_size: int, tokenizer: Tokenizer) -> None:
    """Refuse ids the model has no row for: a tokenizer may hold more tokens than its model."""
    for token in ids:
        if token >= vocab_size:
            raise UsageError(
                f"The text holds the token {tokenizer.id_to_token(token)!r} (id {token}), "
                f"and the model knows only ids below {vocab_size}.",
                "Leave that token out of the text.",
            )


def looks_special(text: str) -> bool:
    """Whether a token is written like one of Gemma's control marks."""
    return _LOOKS_SPECIAL.fullmatch(text) is not None


def end_token_ids(config: TokenizerConfig, ids: Callable[[str], int | None]) -> tuple[int, ...]:
    """Ids of the declared end tokens that the tokenizer knows."""
    found = (ids(text) for text in config.eos_tokens)
    return tuple(dict.fromkeys(token for token in found if token is not None))


def has_surrogate(text: str) -> bool:
    """Whether a str holds half a character, which no UTF-8 text can."""
    return _SURROGATE.search(text) is not None


def _checked_text(text: str) -> str:
    if has_surrogate(text):
        raise UsageError(
            "The text is not valid Unicode: it holds a lone surrogate.",
            "Check that the input is UTF-8 text.",
        )
    return text


def _checked_id(token: int) -> int:
    try:
        number = index(token)
    except TypeError as error:
        raise UsageError(f"A token id must be a whole number, not {token!r}.") from error
    if number < 0:
        raise UsageError(f"A token id cannot be negative, and {number} is.")
    return number


def _touches(positions: Sequence[int]) -> IsPlain | None:
    if not positions:
        return None

    def touches(start: int, end: int) -> bool:
        at = bisect_left(positions, start)
        return at < len(positions) and positions[at] < end

    return touches
