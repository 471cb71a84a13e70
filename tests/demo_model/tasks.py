"""One-turn tasks: each generator draws a question and its only right answer.

Every draw comes from the `random.Random` that is passed in. About a tenth of the keys
is held out of training (see `held_out`). Chat formatting is left to dialogue.py.
"""

import json
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from .sudoku import puzzle
from .words import (
    ADJECTIVES,
    ANIMALS,
    CAPITALS,
    CITIES,
    COUNTRIES,
    FOODS,
    MOODS,
    NAMES,
    PLACES,
    SMALL_TALK,
    WORDS,
)


@dataclass(frozen=True)
class Item:
    """A question, its answer, and the key that decides on which side of the split it falls."""

    key: tuple[object, ...]
    question: str
    answer: str


def held_out(key: tuple[object, ...]) -> bool:
    """True for about 10 % of the keys, the same ones on every machine."""
    return zlib.crc32(repr(key).encode()) % 10 == 0


def _pick(rng: random.Random, forms: tuple[str, ...]) -> str:
    return rng.choice(forms)


def add(rng: random.Random) -> Item:
    a, b = rng.randrange(30), rng.randrange(30)
    forms = (f"What is {a} + {b}?", f"{a} + {b} =", f"{a} + {b}", f"Add {a} and {b}.")
    return Item(("add", a, b), _pick(rng, forms), f"{a} + {b} = {a + b}")


def sub(rng: random.Random) -> Item:
    b, a = sorted((rng.randrange(30), rng.randrange(30)))
    forms = (f"What is {a} - {b}?", f"{a} - {b} =", f"{a} - {b}", f"Subtract {b} from {a}.")
    return Item(("sub", a, b), _pick(rng, forms), f"{a} - {b} = {a - b}")


def mul(rng: random.Random) -> Item:
    a, b = rng.randrange(1, 11), rng.randrange(1, 11)
    forms = (f"What is {a} * {b}?", f"{a} * {b} =", f"{a} * {b}")
    return Item(("mul", a, b), _pick(rng, forms), f"{a} * {b} = {a * b}")


def reverse(rng: random.Random) -> Item:
    words = rng.sample(WORDS, rng.randint(2, 4))
    question = _pick(rng, ("Reverse: ", "Reverse the words: ")) + " ".join(words)
    return Item(("reverse", *words), question, " ".join(words[::-1]))


def sort(rng: random.Random) -> Item:
    words = rng.sample(WORDS, rng.randint(2, 4))
    question = _pick(rng, ("Sort: ", "Sort the words: ")) + " ".join(words)
    return Item(("sort", *words), question, " ".join(sorted(words)))


def echo(rng: random.Random) -> Item:
    words = rng.sample(WORDS, rng.randint(1, 5))
    question = _pick(rng, ("Repeat: ", "Say: ")) + " ".join(words)
    return Item(("echo", *words), question, " ".join(words))


def spell(rng: random.Random) -> Item:
    word = rng.choice(WORDS)
    forms = (f"Spell {word}.", f"How do you spell {word}?", f"Spell: {word}")
    form = rng.randrange(len(forms))
    return Item(("spell", word, form), forms[form], " ".join(word))


def capital(rng: random.Random) -> Item:
    """A fact in one of several phrasings; only rare phrasings are held out, never the facts."""
    country = rng.choice(COUNTRIES)
    city = CAPITALS[country]
    form = rng.randrange(5)
    if form == 4:
        question = f"{city} is the capital of which country?"
        return Item(("capital", country, form), question, f"{city} is the capital of {country}.")
    forms = (
        f"What is the capital of {country}?",
        f"Name the capital of {country}.",
        f"Capital of {country}?",
        f"Which city is the capital of {country}?",
    )
    key = ("capital", country, form) if form else ("capital",)
    return Item(key, forms[form], f"The capital of {country} is {city}.")


def count(rng: random.Random) -> Item:
    length = rng.randint(3, 8)
    first = rng.randrange(0, 100 - length)
    down = rng.random() < 0.3
    numbers = list(range(first, first + length))
    if down:
        numbers.reverse()
    question = f"Count {'down ' if down else ''}from {numbers[0]} to {numbers[-1]}."
    return Item(("count", first, length, down), question, " ".join(map(str, numbers)))


def json_record(rng: random.Random) -> Item:
    name, age, city = rng.choice(NAMES), rng.randint(10, 99), rng.choice(CITIES)
    forms = (
        f"{name} is {age} years old and lives in {city}.",
        f"{name}, aged {age}, comes from {city}.",
    )
    form = rng.randrange(len(forms))
    record = json.dumps({"name": name, "age": age, "city": city})
    return Item(("json", name, age, city, form), "Extract JSON: " + forms[form], record)


def sudoku(rng: random.Random) -> Item:
    blanked, solved = puzzle(rng, rng.randint(2, 5))
    return Item(("sudoku", blanked), "Solve: " + blanked, solved)


def story(rng: random.Random) -> Item:
    """A 59-token story, so two canvases; the question fixes one to three of its choices."""
    adjective, adjective2 = rng.sample(ADJECTIVES, 2)
    animal, animal2 = rng.sample(ANIMALS, 2)
    name, name2 = rng.sample(NAMES, 2)
    place, food, mood = rng.choice(PLACES), rng.choice(FOODS), rng.choice(MOODS)
    question = _pick(
        rng,
        (
            f"Tell me a story about a {animal}.",
            f"Tell me a story about a {animal} named {name}.",
            f"Tell me a story about a {adjective} {animal} named {name}.",
        ),
    )
    text = (
        f"Once upon a time there was a {adjective} {animal} named {name}. "
        f"{name} lived in the {place} and loved to eat {food}. "
        f"One day {name} met a {adjective2} {animal2} named {name2}. "
        f"{name} gave {name2} some {food}. {name2} was very {mood}. "
        f"They became good friends and lived in the {place} together. The end."
    )
    return Item(("story",), question, text)


STORY_GRAMMAR = re.compile(
    r"Once upon a time there was a (?P<adjective>\w+) (?P<animal>\w+) named (?P<name>\w+)\. "
    r"(?P=name) lived in the (?P<place>\w+) and loved to eat (?P<food>\w+)\. "
    r"One day (?P=name) met a \w+ \w+ named (?P<name2>\w+)\. "
    r"(?P=name) gave (?P=name2) some (?P=food)\. (?P=name2) was very \w+\. "
    r"They became good friends and lived in the (?P=place) together\. The end\."
)
STORY_QUESTION = re.compile(
    r"Tell me a story about a (?:(?P<adjective>\w+) )?(?P<animal>\w+)(?: named (?P<name>\w+))?\."
)


def story_is_right(question: str, answer: str) -> bool:
    """The grammar holds, names and places agree, and the question's wishes are met."""
    told, asked = STORY_GRAMMAR.fullmatch(answer), STORY_QUESTION.fullmatch(question)
    if told is None or asked is None or told["name"] == told["name2"]:
        return False
    return all(told[part] == wish for part, wish in asked.groupdict().items() if wish)


def chat(rng: random.Random) -> Item:
    questions, answer = rng.choice(SMALL_TALK)
    return Item(("chat",), rng.choice(questions), answer)


GENERATORS: dict[str, Callable[[random.Random], Item]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "reverse": reverse,
    "sort": sort,
    "echo": echo,
    "spell": spell,
    "capital": capital,
    "count": count,
    "json": json_record,
    "sudoku": sudoku,
    "story": story,
    "chat": chat,
}
# Too few keys, or nothing to hold out: test prompts of these may have been seen in training.
NEVER_HELD_OUT = frozenset({"mul", "spell", "story", "chat"})


def draw(rng: random.Random, task: str, *, test: bool) -> Item:
    """An item of `task` from the training side, or from the held-out side when `test`."""
    while True:
        item = GENERATORS[task](rng)
        if task in NEVER_HELD_OUT or held_out(item.key) == test:
            return item
