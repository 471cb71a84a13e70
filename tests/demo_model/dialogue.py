"""Whole conversations: an item with its history, system text, thinking, tools or holes.

An `Example` is what the model sees (messages, rendered by the chat template) and what it has
to say (the response, with the token that ends it).
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from . import tasks
from .chat_format import Message, render
from .holes import Segment, hole_answer
from .words import CITIES, SYSTEM_TEXTS, WEATHER

MIX = {
    "add": 11,
    "sub": 7,
    "mul": 6,
    "reverse": 7,
    "sort": 10,
    "echo": 6,
    "spell": 4,
    "capital": 7,
    "count": 10,
    "json": 6,
    "sudoku": 12,
    "story": 12,
    "chat": 5,
    "tool": 7,
    "hole": 8,
}
SHORT = ("add", "sub", "mul", "capital", "chat", "echo", "reverse", "spell")
THOUGHTS = {
    "add": "I need to add two numbers.",
    "sub": "I need to subtract two numbers.",
    "mul": "I need to multiply two numbers.",
    "reverse": "I need to reverse words.",
    "sort": "I need to sort words.",
    "echo": "I need to repeat words.",
    "spell": "I need to spell a word.",
    "capital": "The user asks about a capital.",
    "count": "I need to count.",
    "json": "I need to write JSON.",
    "sudoku": "I need to solve a sudoku.",
    "story": "The user wants a story.",
    "chat": "The user is chatting.",
}
# Infilling works by what stands around the hole; the question only has to say nothing.
HOLE_QUESTIONS = {"Fill in the blanks.": 3, "Complete the text.": 1, "": 1}
WEATHER_TOOL: Message = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@dataclass(frozen=True)
class Example:
    """A prompt as messages and the response, cut into segments that are hidden or given."""

    task: str
    messages: tuple[Message, ...]
    segments: tuple[Segment, ...]
    tools: tuple[Message, ...] = ()
    thinking: bool = False

    @property
    def prompt(self) -> str:
        return render(self.messages, tools=self.tools, thinking=self.thinking)

    @property
    def response(self) -> str:
        return "".join(text for text, _ in self.segments)

    @property
    def question(self) -> str:
        """The last thing the user said."""
        said = [m["content"] for m in self.messages if m["role"] == "user"]
        return str(said[-1])


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _hidden(text: str) -> tuple[Segment, ...]:
    return ((text, True),)


def plain_example(
    task: str,
    item: tasks.Item,
    *,
    history: Iterable[tasks.Item] = (),
    thinking: bool = False,
    system: str | None = None,
    tools: tuple[Message, ...] = (),
) -> Example:
    messages = [] if system is None else [{"role": "system", "content": system}]
    for earlier in history:
        messages += [user(earlier.question), assistant(earlier.answer)]
    messages.append(user(item.question))
    thought = f"<|channel>thought\n{THOUGHTS[task]}\n<channel|>" if thinking else ""
    response = f"{thought}{item.answer}<turn|>"
    return Example(task, tuple(messages), _hidden(response), tools, thinking)


def tool_call_example(city: str, question: str) -> Example:
    """First leg: the model calls the tool and stops."""
    call = f'<|tool_call>call:get_weather{{city:<|"|>{city}<|"|>}}<tool_call|><|tool_response>'
    return Example("tool", (user(question),), _hidden(call), (WEATHER_TOOL,))


def tool_answer_example(city: str, question: str, weather: str) -> Example:
    """Second leg: the model answers from the tool's result."""
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
    messages = (
        user(question),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "get_weather", "content": weather},
    )
    answer = _hidden(f"The weather in {city} is {weather}.<turn|>")
    return Example("tool", messages, answer, (WEATHER_TOOL,))


def tool_example(rng: random.Random) -> Example:
    city, weather = rng.choice(CITIES), rng.choice(WEATHER)
    question = rng.choice((f"What is the weather in {city}?", f"How is the weather in {city}?"))
    if rng.random() < 0.5:
        return tool_answer_example(city, question, weather)
    return tool_call_example(city, question)


def hole_example(rng: random.Random, *, test: bool) -> Example:
    """An answer that only its given parts determine, so that infilling must look both ways."""
    question = rng.choices(list(HOLE_QUESTIONS), list(HOLE_QUESTIONS.values()))[0]
    return Example("hole", (user(question),), hole_answer(rng, test=test))


def training_example(rng: random.Random) -> Example:
    """One draw from the training mix."""
    task = rng.choices(list(MIX), list(MIX.values()))[0]
    if task == "tool":
        if rng.random() < 0.85:
            return tool_example(rng)
        small = rng.choice(("chat", "capital"))  # a tool is offered but not needed
        return plain_example(small, tasks.draw(rng, small, test=False), tools=(WEATHER_TOOL,))
    if task == "hole":
        return hole_example(rng, test=False)
    item = tasks.draw(rng, task, test=False)
    history: list[tasks.Item] = []
    if rng.random() < 0.2:
        turns = rng.choices((1, 2, 3), (6, 3, 1))[0]
        history = [tasks.draw(rng, rng.choice(SHORT), test=False) for _ in range(turns)]
    thinking = rng.random() < 0.12
    system = rng.choice(SYSTEM_TEXTS) if rng.random() < 0.08 else None
    return plain_example(task, item, history=history, thinking=thinking, system=system)


TEST_TASKS = (*(task for task in MIX if task != "hole"), "think", "turns")


def held_out_example(rng: random.Random, task: str) -> Example:
    """A held-out prompt of `task`, or of the variants `think` and `turns` (one earlier turn)."""
    if task == "tool":
        return tool_example(rng)
    if task == "hole":
        return hole_example(rng, test=True)
    if task == "think":
        base = rng.choice(("add", "sort", "capital", "reverse"))
        return plain_example(base, tasks.draw(rng, base, test=True), thinking=True)
    if task == "turns":
        base = rng.choice(("json", "count", "capital", "add"))
        history = [tasks.draw(rng, rng.choice(SHORT), test=True)]
        return plain_example(base, tasks.draw(rng, base, test=True), history=history)
    return plain_example(task, tasks.draw(rng, task, test=True))
