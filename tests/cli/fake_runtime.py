"""A scripted runtime: answers are given as texts with markers, and come out as real events."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlx_diffusiongemma.diffusion.events import (
    CanvasDone,
    CanvasStarted,
    Event,
    Finished,
    FinishReason,
    Step,
)
from mlx_diffusiongemma.errors import DiffusionGemmaError
from mlx_diffusiongemma.results import Result, Stats
from mlx_diffusiongemma.text.channels import ToolCall

SPECIALS = ("<pad>", "<eos>", "<bos>", "<turn|>", "<|channel>", "<channel|>")
END = 3
THOUGHT = re.compile(r"<\|channel>thought\n(.*?)(?:<channel\|>|\Z)", re.DOTALL)
PIECES = re.compile(r"<[|\w]+>|<0x[0-9A-F]{2}>| ?\w+|\s|.", re.DOTALL)


class FakeTokenizer:
    """Words as tokens, the bytes of an emoji as byte tokens."""

    def __init__(self) -> None:
        self.names = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
        self.special_ids = frozenset(range(len(SPECIALS)))

    def encode(self, text: str) -> list[int]:
        ids = []
        for piece in PIECES.findall(text):
            if piece not in SPECIALS and len(piece) == 1 and ord(piece) > 0xFFFF:
                ids += [self.names.index(f"<0x{byte:02X}>") for byte in piece.encode()]
                continue
            if piece not in self.names:
                self.names.append(piece)
            ids.append(self.names.index(piece))
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        out = b""
        for token in ids:
            name = self.names[token]
            byte = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
            out += bytes([int(byte[1], 16)]) if byte else name.encode()
        return out.decode("utf-8", "replace")

    def id_to_token(self, id: int) -> str | None:
        return self.names[id] if 0 <= id < len(self.names) else None

    def token_id(self, text: str) -> int | None:
        return self.names.index(text) if text in self.names else None


@dataclass
class Answer:
    """What the runtime says to one prompt. canvases: the texts, markers included."""

    canvases: Sequence[str] = ("The answer.",)
    reason: FinishReason = "stop"
    steps: int = 3
    delay: float = 0.0
    length: int = 32
    times: int = 1
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: DiffusionGemmaError | None = None
    before_step: Callable[[int, int], None] | None = None


@dataclass
class FakeRuntime:
    answers: list[Answer] = field(default_factory=lambda: [Answer()])
    notices: tuple[str, ...] = ()
    calls: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    source: Path = Path("fake")
    closed: int = 0
    opened: list[tuple[str, str | None, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokenizer = FakeTokenizer()
        self.stop_ids = frozenset({1, END})
        self.config = SimpleNamespace(stop_token_ids=(1, END), canvas_length=32)

    def stream(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        on_prefill: Callable[[int, int], None] | None = None,
        **keywords: Any,
    ) -> FakeStream:
        copied = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
        self.calls.append((copied, keywords))
        answer = self.answers[min(len(self.calls), len(self.answers)) - 1]
        if answer.refusal is not None:
            raise answer.refusal
        return FakeStream(self, answer, keywords.get("seed"), on_prefill)


class FakeStream:
    def __init__(
        self,
        runtime: FakeRuntime,
        answer: Answer,
        seed: int | None,
        on_prefill: Callable[[int, int], None] | None,
    ) -> None:
        self._runtime = runtime
        self._answer = answer
        self._seed = 12345 if seed is None else seed
        self._on_prefill = on_prefill
        self._result: Result | None = None
        self._events = self._run()

    def __iter__(self) -> FakeStream:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        self._runtime.closed += 1
        self._events.close()  # type: ignore[attr-defined]

    @property
    def result(self) -> Result:
        if self._result is None:
            raise DiffusionGemmaError("The answer is not complete yet.")
        return self._result

    def _run(self) -> Iterator[Event]:
        answer, tokenizer = self._answer, self._runtime.tokenizer
        if self._on_prefill is not None:
            self._on_prefill(7, 7)
        said, emitted = "", []
        for number, line in enumerate(answer.canvases, start=1):
            text = line * answer.times
            last = number == len(answer.canvases)
            ids = tokenizer.encode(text)
            if last and answer.reason == "stop":
                ids.append(END)
            yield CanvasStarted(number, max(answer.length, len(ids)))
            yield from self._steps(number, ids)
            before, said = _split(said), said + text
            after = _split(said)
            emitted += ids
            yield CanvasDone(
                number,
                tuple(ids),
                answer.steps,
                converged=True,
                text=after[0][len(before[0]) :],
                thinking=after[1][len(before[1]) :],
            )
        steps = (answer.steps,) * len(answer.canvases)
        self._result = Result(
            text=_split(said)[0],
            thinking=_split(said)[1],
            tool_calls=answer.tool_calls,
            token_ids=tuple(emitted),
            finish_reason=answer.reason,
            cut_while_thinking=said.count("<|channel>") > said.count("<channel|>"),
            seed=self._seed,
            stats=Stats(7, 0, len(emitted), steps, 0.25, 0.5),
        )
        yield Finished(answer.reason, tuple(emitted), steps)

    def _steps(self, number: int, ids: list[int]) -> Iterator[Step]:
        length = max(self._answer.length, len(ids))
        draft = np.array(ids + [END] * (length - len(ids)), dtype=np.int32)
        for step in range(1, self._answer.steps + 1):
            if self._answer.delay:
                time.sleep(self._answer.delay)
            if self._answer.before_step is not None:
                self._answer.before_step(number, step)
            settled = np.arange(length) < length * step // self._answer.steps
            yield Step(
                canvas=number,
                step=step,
                max_steps=48,
                temperature=0.8,
                draft=draft,
                entropies=np.where(settled, 0.0, 2.0).astype(np.float32),
                accepted=settled,
                stable=step == self._answer.steps,
                converged=step == self._answer.steps,
            )


def _split(text: str) -> tuple[str, str]:
    """Answer and thinking of a text with markers."""
    thinking = "".join(THOUGHT.findall(text))
    return THOUGHT.sub("", text), thinking
