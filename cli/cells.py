"""A draft as cells: what each position of the canvas reads as, and whether it has settled.

Turns one denoising step into pieces of text with marks. Colours and layout are the view's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mlx_diffusiongemma.diffusion.events import Step

CHANNEL_OPEN, CHANNEL_CLOSE = "<|channel>", "<channel|>"


class TokenReader(Protocol):
    """What cells need of a tokenizer."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of markers that are no text."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Ids to text."""
        ...

    def id_to_token(self, id: int) -> str | None:
        """The vocabulary entry of an id."""
        ...

    def token_id(self, text: str) -> int | None:
        """The id of a vocabulary entry."""
        ...


@dataclass(frozen=True)
class Cell:
    """One piece of a draft: a token, or several that only together make characters."""

    text: str
    settled: bool
    thinking: bool


class CellReader:
    """Reads drafts of one answer. Remembers which channel each finished canvas ended in."""

    def __init__(self, tokenizer: TokenReader, stop_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)
        self._open = tokenizer.token_id(CHANNEL_OPEN)
        self._close = tokenizer.token_id(CHANNEL_CLOSE)
        self._in_channel = False
        self._texts: dict[int, str] = {}
        self._is_byte: dict[int, bool] = {}

    def canvas_done(self, ids: Iterable[int]) -> None:
        """The next canvas continues in the channel these ids end in."""
        for token in ids:
            self._in_channel = self._next_channel(token, self._in_channel)

    def cells(self, step: Step) -> list[Cell]:
        """The draft up to its first end token, without markers and without the channel's name."""
        cells: list[Cell] = []
        thinking, header = self._in_channel, False
        run: list[int] = []
        run_settled = True
        for token, settled in zip(step.draft.tolist(), step.accepted.tolist(), strict=True):
            if run and not self._byte(token):
                cells.append(Cell(self._tokenizer.decode(run), run_settled, thinking))
                run, run_settled = [], True
            if token in self._stop_ids:
                break
            changed = self._next_channel(token, thinking)
            if changed != thinking:
                thinking, header = changed, changed
            elif token in self._tokenizer.special_ids:
                continue
            elif self._byte(token):
                run.append(token)
                run_settled = run_settled and settled
            else:
                text = self._text(token)
                if header:  # the channel's name, up to the end of its line
                    header, text = "\n" not in text, text.partition("\n")[2]
                cells.append(Cell(text, settled, thinking))
        if run:
            cells.append(Cell(self._tokenizer.decode(run), run_settled, thinking))
        return cells

    def _next_channel(self, token: int, thinking: bool) -> bool:
        if token == self._open:
            return True
        return thinking and token != self._close

    def _text(self, token: int) -> str:
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self._tokenizer.decode([token])
        return text

    def _byte(self, token: int) -> bool:
        """Byte tokens stand for characters only in runs."""
        known = self._is_byte.get(token)
        if known is None:
            name = self._tokenizer.id_to_token(token) or ""
            known = len(name) == 6 and name.startswith("<0x") and name.endswith(">")
            self._is_byte[token] = known
        return known


def settled_share(step: Step) -> int:
    """Settled positions of the canvas in whole per cent, rounded down: 100 means all."""
    return int(step.accepted.sum()) * 100 // max(len(step.accepted), 1)


def footer(step: Step) -> str:
    """The line that says how far a canvas is."""
    return (
        f"canvas {step.canvas} · step {step.step}/{step.max_steps}"
        f" · {settled_share(step)} % settled"
    )
