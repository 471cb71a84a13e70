"""Token ids of finished canvases to text by channel, as it becomes final."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlx_diffusiongemma.diffusion.events import Finished
from mlx_diffusiongemma.results import Result, Stats
from mlx_diffusiongemma.text.channels import (
    CALL_CLOSE,
    CALL_OPEN,
    ChannelSplitter,
    Piece,
    State,
    ToolCall,
)
from mlx_diffusiongemma.text.tokenizer import Tokenizer


class AnswerReader:
    """Collects one answer. `start` is the channel state in which the prompt ends.

    A tool call that cannot be parsed is not lost: it stays in the answer's text, marks included.
    """

    def __init__(self, tokenizer: Tokenizer, start: State) -> None:
        self._splitter = ChannelSplitter(tokenizer, start=start)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._cut_while_thinking = False

    def feed(self, ids: Sequence[int]) -> tuple[str, str]:
        """The answer and thinking text that become final with these ids."""
        return self._take(self._splitter.feed(ids))

    def finish(self) -> tuple[str, str]:
        """The answer and thinking text that were still held back."""
        rest = self._splitter.finish()
        self._cut_while_thinking = self._splitter.state == "thinking"
        return self._take(rest)

    def result(self, finished: Finished, seed: int, stats: Stats) -> Result:
        """The whole answer, after `finish`."""
        return Result(
            text="".join(self._text),
            thinking="".join(self._thinking),
            tool_calls=tuple(self._calls),
            token_ids=finished.token_ids,
            finish_reason=finished.reason,
            cut_while_thinking=self._cut_while_thinking,
            seed=seed,
            stats=stats,
        )

    def _take(self, pieces: Iterable[Piece]) -> tuple[str, str]:
        text, thinking = "", ""
        for piece in pieces:
            if piece.kind == "thinking":
                thinking += piece.text
            elif piece.kind == "answer":
                text += piece.text
            elif piece.call is not None:
                self._calls.append(piece.call)
            else:
                text += f"{CALL_OPEN}{piece.text}{CALL_CLOSE}"
        self._text.append(text)
        self._thinking.append(thinking)
        return text, thinking
