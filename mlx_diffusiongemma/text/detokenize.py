"""Ids to text, a few at a time; decoding itself is left to the tokenizer."""

from __future__ import annotations

from collections.abc import Iterable

from mlx_diffusiongemma.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns ids into text that never changes afterwards.

    Joined, the results of `add` and `finish` equal `tokenizer.decode` of all ids, however they are
    cut. Two things make that hard. A run of byte tokens is decoded as a whole (one bad byte spoils
    the characters before it too), so a trailing run is held back. And some tokenizers strip a space
    at the very start, so the start is decoded together until it shows any text. A decoder that does
    not work part by part gives all its text at the end.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._held: list[int] = []  # a trailing run of byte tokens
        self._head: list[int] = []  # all so far, while they have shown no text
        self._started = False

    def add(self, ids: Iterable[int]) -> str:
        """Take more ids, and return the text that is now final (often a little behind)."""
        new = self._tokenizer.kept_ids(ids, skip_special_tokens=self._skip)
        cut = self._end_of_last_whole(new) if self._tokenizer.decodes_in_parts else 0
        if cut == 0:
            self._held.extend(new)
            return ""
        ready = self._held + new[:cut]
        self._held = new[cut:]
        return self._text(ready)

    def flush(self) -> str:
        """Return what is held back: something that breaks byte runs (a marker) stands here."""
        ready, self._held = self._held, []
        text = self._text(ready) if ready else ""
        self._started = True
        self._head.clear()
        return text

    def finish(self) -> str:
        """Return the rest of the text."""
        return self.flush()

    def _end_of_last_whole(self, ids: list[int]) -> int:
        """Position after the last id that is not a byte token."""
        for position in range(len(ids), 0, -1):
            if not self._tokenizer.is_byte(ids[position - 1]):
                return position
        return 0

    def _text(self, ids: list[int]) -> str:
        if self._started:
            return self._tokenizer.decode_more(ids)
        self._head.extend(ids)
        text = self._tokenizer.decode(self._head)
        if text:
            self._started = True
            self._head.clear()
        return text
