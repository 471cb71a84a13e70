"""tokenizer.model through `sentencepiece`, for folders without a tokenizer.json.

Which file to open is left to tokenizer.py. SentencePiece knows "control" pieces, which it neither
finds in text nor shows, and "user-defined" ones, which it always finds. Here all control pieces are
special tokens, and of the user-defined ones those that are written like control marks or that
tokenizer_config.json names.
"""

from __future__ import annotations

import re
from pathlib import Path

import sentencepiece

from mlx_diffusiongemma.errors import ModelError
from mlx_diffusiongemma.text.files import GET_AGAIN, one_line, read_bytes
from mlx_diffusiongemma.text.tokenizer import IsPlain, Tokenizer, end_token_ids, looks_special
from mlx_diffusiongemma.text.tokenizer_config import TokenizerConfig


def open_tokenizer_model(path: Path, config: TokenizerConfig) -> PieceTokenizer:
    """Open a tokenizer.model; ModelError with the library's reason when it is damaged."""
    data = read_bytes(path)
    model = sentencepiece.SentencePieceProcessor()
    try:
        if not data:
            raise RuntimeError("the file is empty")
        model.load_from_serialized_proto(data)
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path.name} is not a SentencePiece model: {one_line(str(error))}.", GET_AGAIN
        ) from error
    return PieceTokenizer(model, config)


class PieceTokenizer(Tokenizer):
    """A tokenizer.model.

    Text around special tokens is encoded piece by piece, as the model's own settings say: a model
    that puts a space in front of every text (Gemma's does not) puts one after special tokens too.
    """

    def __init__(
        self, model: sentencepiece.SentencePieceProcessor, config: TokenizerConfig
    ) -> None:
        self._model = model
        self._size = model.get_piece_size()
        # tokenizer_config.json may rename reserved pieces ("<unused99>" -> "<|turn>").
        self._names = dict(config.by_id)
        self._ids = {text: token for token, text in self._names.items()}
        special = self._find_special(config)
        super().__init__(
            special_tokens=special,
            eos_token_ids=end_token_ids(config, self.token_id) or _own_end(model),
            unknown_id=model.unk_id() if model.unk_id() >= 0 else None,
            vocab_size=max(self._size, max(self._names, default=-1) + 1),
        )
        self._text_of = {token: text for text, token in special.items()}
        longest_first = sorted(special, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._anchor, self._anchor_text = self._find_anchor()

    def _find_special(self, config: TokenizerConfig) -> dict[str, int]:
        special: dict[str, int] = {}
        for token in range(self._size):
            text = self.id_to_token(token)
            if text is None or not text.strip():
                continue
            if (
                self._model.is_control(token)
                or self._model.is_unknown(token)
                or text in config.special
                or (looks_special(text) and self._is_reachable(text, token))
            ):
                special[text] = token
        for token, text in self._names.items():
            if token >= self._size or text in config.special or looks_special(text):
                special[text] = token
        return special

    def _is_reachable(self, text: str, token: int) -> bool:
        """Whether plain text can give this piece, which tells user-defined from unused pieces."""
        return token in self._names or token in self._model.encode(text)

    def _encode(self, text: str, plain: IsPlain | None) -> list[int]:
        ids: list[int] = []
        start = 0
        for match in self._pattern.finditer(text):
            if plain is not None and plain(match.start(), match.end()):
                continue
            ids.extend(self._segment(text[start : match.start()]))
            ids.append(self.special_tokens[match.group()])
            start = match.end()
        ids.extend(self._segment(text[start:]))
        return ids

    def _segment(self, text: str) -> list[int]:
        """Ids of text without special tokens: those that SentencePiece finds are spelled out."""
        if not text:
            return []
        ids: list[int] = self._model.encode(text)
        if self.control_ids.isdisjoint(ids):
            return ids
        spelled: list[int] = []
        for token in ids:
            is_mark = token in self.control_ids
            spelled.extend(self.plain_form(self._model.id_to_piece(token)) if is_mark else [token])
        return spelled

    def _natural_form(self, text: str) -> list[int]:
        # A user-defined piece is found wherever it stands whole, so its first character goes alone.
        return [*self._model.encode(text[:1]), *self._model.encode(text[1:])]

    def _decode(self, ids: list[int]) -> str:
        return self._join(ids, at_start=True)

    def _decode_more(self, ids: list[int]) -> str:
        return self._join(ids, at_start=False)

    def _join(self, ids: list[int], *, at_start: bool) -> str:
        """Text of ids with special tokens shown; leading spaces go only at the very start."""
        parts: list[str] = []
        run: list[int] = []

        def end_run() -> None:
            nonlocal at_start
            if not run:
                return
            if at_start:
                parts.append(self._model.decode(run))
            else:
                parts.append(self._model.decode([*self._anchor, *run])[len(self._anchor_text) :])
            at_start = at_start and not parts[-1]
            run.clear()

        for token in ids:
            special = self._text_of.get(token)
            if special is None:
                run.append(token)
                continue
            end_run()
            parts.append(special)
            at_start = False
        end_run()
        return "".join(parts)

    def _is_byte(self, token: int) -> bool:
        return token < self._size and token not in self._names and self._model.is_byte(token)

    def token_id(self, text: str) -> int | None:
        if text in self._ids:
            return self._ids[text]
        try:
            token: int = self._model.piece_to_id(text)
        except (RuntimeError, TypeError):
            return None  # not valid Unicode: no piece has such a name
        # An unknown piece gives the unknown id, a renamed one no longer has its old name.
        if token >= self._size or token in self._names or self._model.id_to_piece(token) != text:
            return None
        return token

    def id_to_token(self, token: int) -> str | None:
        if token in self._names:
            return self._names[token]
        if not 0 <= token < self._size:
            return None
        piece: str = self._model.id_to_piece(token)
        return piece

    def _find_anchor(self) -> tuple[list[int], str]:
        """A piece with visible text, to stand before ids that continue a text."""
        for token in range(self._size):
            if token in self.special_ids or self._model.is_byte(token):
                continue
            shown = self._model.decode([token])
            if shown and not shown[0].isspace() and not shown[-1].isspace():
                return [token], shown
        return [], ""


def _own_end(model: sentencepiece.SentencePieceProcessor) -> tuple[int, ...]:
    """The end id the model itself names, where no declared end token has an id."""
    return (model.eos_id(),) if model.eos_id() >= 0 else ()
