"""Training batches: every step's examples, canvases and masks, a pure function of (seed, step).

A pool of examples is drawn, sorted by length and cut into batches, so rows of a batch have
similar lengths. Nothing is kept between steps: a resumed run sees the same data.
"""

import random
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .dialogue import training_example
from .encoding import Encoded, encode_example

PAD, EOS = 0, 1
POOL_BATCHES = 16
SPAN_SHARE = 0.12  # examples of any task trained as infilling
TAIL_GIVEN = 0.7  # infilling with the end of the canvas known
FILL_WEIGHT = 0.3  # loss weight of the <eos> fill and of given tokens


@dataclass(frozen=True)
class Batch:
    """B rows: the clean sequence for the encoder and one canvas of its response."""

    tasks: list[str]
    ids: Tensor  # (B, L) prompt and response, padded at the end
    prefix: Tensor  # (B,) tokens before the canvas
    target: Tensor  # (B, C) clean canvas, <eos> after the response's end
    hidden: Tensor  # (B, C) positions that are corrupted
    weight: Tensor  # (B, C) loss weights
    content: Tensor  # (B, C) response tokens, not fill
    next_token: Tensor  # (B, L) positions whose next token the encoder has to predict


class BatchSource:
    """Batches by step number."""

    def __init__(self, tokenizer: Tokenizer, seed: int, size: int, canvas: int) -> None:
        self.tokenizer, self.seed, self.size, self.canvas = tokenizer, seed, size, canvas
        self._pool_number = -1
        self._pool: list[Batch] = []

    def __getitem__(self, step: int) -> Batch:
        number, index = divmod(step, POOL_BATCHES)
        if number != self._pool_number:
            self._pool, self._pool_number = self._make_pool(number), number
        return self._pool[index]

    def _make_pool(self, number: int) -> list[Batch]:
        rng = random.Random(f"{self.seed}/{number}")
        examples = [
            encode_example(self.tokenizer, training_example(rng))
            for _ in range(self.size * POOL_BATCHES)
        ]
        examples.sort(key=lambda e: len(e.prompt) + len(e.response) + 4 * rng.random())
        groups = [examples[i : i + self.size] for i in range(0, len(examples), self.size)]
        rng.shuffle(groups)
        for group in groups:
            rng.shuffle(group)
        return [self._batch(rng, group) for group in groups]

    def _batch(self, rng: random.Random, group: list[Encoded]) -> Batch:
        size = self.canvas
        longest = max(len(e.prompt) + len(e.response) for e in group)
        ids = torch.full((len(group), longest), PAD)
        next_token = torch.zeros(len(group), longest, dtype=torch.bool)
        target = torch.full((len(group), size), EOS)
        hidden = torch.ones(len(group), size, dtype=torch.bool)
        content = torch.zeros(len(group), size, dtype=torch.bool)
        prefix = torch.zeros(len(group), dtype=torch.long)
        for row, example in enumerate(group):
            start, length = len(example.prompt), len(example.response)
            ids[row, : start + length] = torch.tensor(example.prompt + example.response)
            next_token[row, start - 1 : start + length - 1] = example.task != "hole"
            block = rng.randrange((length - 1) // size + 1)
            piece = example.response[block * size : (block + 1) * size]
            prefix[row] = start + block * size
            target[row, : len(piece)] = torch.tensor(piece)
            content[row, : len(piece)] = True
            hidden[row] = torch.tensor(self._hidden(rng, example, len(piece)))
        weight = torch.where(content & hidden, 1.0, FILL_WEIGHT)
        tasks = [example.task for example in group]
        return Batch(tasks, ids, prefix, target, hidden, weight, content, next_token)

    def _hidden(self, rng: random.Random, example: Encoded, length: int) -> list[bool]:
        """Which canvas positions are corrupted: all, or one span, or the example's holes.

        A hole example is at most one canvas long; its last token ends the turn.
        """
        tail_hidden = rng.random() >= TAIL_GIVEN
        if example.task == "hole":
            shown = [*example.hidden[:-1], tail_hidden]
        elif rng.random() < SPAN_SHARE:
            span = rng.randint(1, length)
            start = rng.randint(0, length - span)
            shown = [start <= index < start + span for index in range(length)]
        else:
            return [True] * self.canvas
        return shown + [tail_hidden] * (self.canvas - length)
