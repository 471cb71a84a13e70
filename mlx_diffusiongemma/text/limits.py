"""What a template may spend while it renders: text, loop rounds, time; the sandbox does the asking.

Values are measured as they would be written out, because a small nest of lists that contain each
other many times over can be astronomically long as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from time import thread_time
from typing import Any

from jinja2.exceptions import SecurityError

from mlx_diffusiongemma.text.standins import StandIns

# Sizes in characters. A 262,144-token prompt is about 1 million characters.
MAX_SOURCE = 256 * 1024  # the released template has 17,336
BASE_TEXT = 4_000_000  # one string, and the whole output, before the caller's own text is counted
TEXT_FACTOR = 4
BASE_WORK = 256_000_000  # all strings made while rendering
WORK_FACTOR = 64
BASE_ROUNDS = 2_000_000  # loop rounds and macro calls; templates look back over all messages
MAX_SECONDS = 20.0  # of this thread's CPU time
MAX_ITEMS = 1_000_000  # in one list
MAX_INTEGER_BITS = 4096
MAX_PADDING = 1_000

_ROUNDS_PER_LOOK_AT_THE_CLOCK = 64


class LimitReached(SecurityError):
    """A template asked for more than it may spend."""


@dataclass
class Budget:
    """One rendering's allowance, and the few things its filters have to know about it."""

    max_text: int
    max_work: int
    max_rounds: int
    max_seconds: float
    stand_ins: StandIns | None = None
    now: datetime = field(default_factory=datetime.now)
    _work: int = 0
    _rounds: int = 0
    _began: float = field(default_factory=thread_time)

    @classmethod
    def for_input(
        cls, text: int, messages: int, stand_ins: StandIns | None, now: datetime
    ) -> Budget:
        """Allowance for messages that hold `text` characters."""
        return cls(
            max_text=BASE_TEXT + TEXT_FACTOR * text,
            max_work=BASE_WORK + WORK_FACTOR * text,
            max_rounds=BASE_ROUNDS + 4 * messages * messages,
            max_seconds=MAX_SECONDS,
            stand_ins=stand_ins,
            now=now,
        )

    def spend(self, characters: int) -> None:
        """A string of this length is about to be made, or was."""
        if characters > self.max_text:
            raise LimitReached(f"it makes a text of more than {self.max_text} characters")
        self._work += characters
        if self._work > self.max_work:
            raise LimitReached(f"it makes more than {self.max_work} characters of text")

    def round(self) -> None:
        """A loop goes round, a macro is called, or a stretch of statements begins."""
        self._rounds += 1
        if self._rounds > self.max_rounds:
            raise LimitReached(f"it goes round its loops more than {self.max_rounds} times")
        late = self._rounds % _ROUNDS_PER_LOOK_AT_THE_CLOCK == 0
        if late and thread_time() - self._began > self.max_seconds:
            raise LimitReached(f"it takes longer than {self.max_seconds:g} seconds")

    def items(self, count: int) -> None:
        """A list of this length is about to be made, or was."""
        if count > MAX_ITEMS:
            raise LimitReached(f"it makes a list of more than {MAX_ITEMS} items")

    def measure(self, value: Any) -> int:
        """Length of a value as text, roughly; LimitReached when it is out of proportion."""
        if type(value) is str:
            return len(value)
        total = 0
        waiting = [value]
        while waiting:
            here = waiting.pop()
            if isinstance(here, (str, bytes)):
                total += len(here) + 2
            elif isinstance(here, Mapping):
                total += 4 * len(here) + 2
                waiting.extend(here.keys())
                waiting.extend(here.values())
            elif isinstance(here, (list, tuple, set, frozenset)):
                total += 2 * len(here) + 2
                waiting.extend(here)
            elif isinstance(here, int):
                check_integer(here)
                total += 1 + here.bit_length() // 3
            else:
                total += 1
            if total > self.max_text:
                raise LimitReached(f"it makes a text of more than {self.max_text} characters")
        return total


_current: ContextVar[Budget] = ContextVar("template_budget")


def current() -> Budget:
    """The budget of the rendering under way."""
    return _current.get()


def set_current(budget: Budget) -> Any:
    """Begin a rendering; give the result to `reset_current` at its end."""
    return _current.set(budget)


def reset_current(token: Any) -> None:
    """End a rendering."""
    _current.reset(token)


def check_integer(value: int) -> None:
    """Refuse whole numbers that only serve to use up time."""
    if value.bit_length() > MAX_INTEGER_BITS:
        raise LimitReached("it computes with numbers of more than a thousand digits")


def check_padding(width: Any) -> None:
    """Refuse to fill up text to enormous widths."""
    if isinstance(width, str):
        width = len(width)
    if isinstance(width, (int, float)) and abs(width) > MAX_PADDING:
        raise LimitReached(f"it pads text by more than {MAX_PADDING} characters")


def total_text(values: Iterable[Any]) -> int:
    """Characters in plain JSON values (already copied, so finite)."""
    total = 0
    waiting = list(values)
    while waiting:
        here = waiting.pop()
        if isinstance(here, str):
            total += len(here)
        elif isinstance(here, Mapping):
            waiting.extend(here.keys())
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(here)
    return total
