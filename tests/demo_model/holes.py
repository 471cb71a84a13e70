"""Answers with holes: the question says nothing, the given parts on both sides decide.

Each hole has one right filling. The text is cut into segments that are encoded one by one,
so a hole may or may not include the space before its word.
"""

import random

from . import tasks

Segment = tuple[str, bool]  # text, hidden


def _around(text: str, start: int, end: int) -> list[Segment]:
    parts = ((text[:start], False), (text[start:end], True), (text[end:], False))
    return [part for part in parts if part[0]]


def _word_hole(rng: random.Random, text: str, word: str) -> list[Segment]:
    """Hides the first `word`; half the time the space before it is hidden too."""
    start = text.index(word)
    if start > 0 and text[start - 1] == " " and rng.random() < 0.5:
        return _around(text, start - 1, start + len(word))
    return _around(text, start, start + len(word))


def _capital(rng: random.Random, test: bool) -> list[Segment]:
    while True:
        item = tasks.draw(rng, "capital", test=test)
        words = item.answer.rstrip(".").split()
        left, right = (words[3], words[5]) if words[0] == "The" else (words[0], words[5])
        return _word_hole(rng, item.answer, rng.choice((left, left, right)))


def _sum(rng: random.Random, test: bool) -> list[Segment]:
    item = tasks.draw(rng, rng.choice(("add", "sub")), test=test)
    a, sign, b, _, c = item.answer.split()
    spans = {
        "a": (0, len(a)),
        "b": (len(f"{a} {sign} "), len(f"{a} {sign} {b}")),
        "c": (len(item.answer) - len(c), len(item.answer)),
    }
    return _around(item.answer, *spans[rng.choice("abc")])


def _count(rng: random.Random, test: bool) -> list[Segment]:
    item = tasks.draw(rng, "count", test=test)
    numbers = item.answer.split()
    index = rng.randrange(len(numbers))
    start = len(" ".join(numbers[:index])) + (index > 0)
    return _around(item.answer, start, start + len(numbers[index]))


def _sudoku(rng: random.Random, test: bool) -> list[Segment]:
    item = tasks.draw(rng, "sudoku", test=test)
    blanked = item.question.removeprefix("Solve: ")
    return [(digit, shown == "_") for digit, shown in zip(item.answer, blanked, strict=True)]


def _story(rng: random.Random, _test: bool) -> list[Segment]:
    """A sentence about two animals; each name or place is told twice, one of them is hidden."""
    words = tasks.STORY_GRAMMAR.fullmatch(tasks.story(rng).answer)
    assert words is not None
    name, animal, place = words["name"], words["animal"], words["place"]
    text = f"{name} lived in the {place}. The {animal} {name} loved the {place}."
    hidden = rng.choice((name, place))
    if rng.random() < 0.5:
        return _word_hole(rng, text, hidden)
    start = text.rindex(hidden)
    return _around(text, start - 1, start + len(hidden))


KINDS = {_capital: 5, _sum: 3, _count: 2, _sudoku: 3, _story: 2}


def hole_answer(rng: random.Random, *, test: bool) -> tuple[Segment, ...]:
    """The segments of one answer, its end token given too."""
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    return (*kind(rng, test), ("<turn|>", False))
