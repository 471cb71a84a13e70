"""Builds the demo tokenizer: Gemma's special tokens at their real ids, bytes, and small BPE.

Deterministic: the word counts come from seeded draws of the training mix, and ties between
merges break by text. Bare words are merged first, the tasks' content words before all others,
then each is joined with the `▁` that stands for the space before it: a content word is one token
with and without its space.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from .dialogue import training_example
from .words import CONTENT_WORDS

VOCABULARY = 1408
CORPUS_SIZE, CORPUS_SEED = 20_000, 0
# Damped counts: a rare name matters nearly as much as a common word.
DAMPING = 0.15
SPECIAL = {
    0: "<pad>",
    1: "<eos>",
    2: "<bos>",
    3: "<unk>",
    4: "<mask>",
    46: "<|tool>",
    47: "<tool|>",
    48: "<|tool_call>",
    49: "<tool_call|>",
    50: "<|tool_response>",
    51: "<tool_response|>",
    52: '<|"|>',
    98: "<|think|>",
    100: "<|channel>",
    101: "<channel|>",
    105: "<|turn>",
    106: "<turn|>",
}
NEWLINE_ID = 107
MEDIA = ("<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|video|>")
CHARACTERS = [chr(code) for code in range(33, 127)] + ["▁"]
MARKERS = re.compile("|".join(map(re.escape, SPECIAL.values())))
PIECES = re.compile(r"( ?)([A-Za-z]+|[^\sA-Za-z0-9]+)")


def _count_pieces(counts: Counter[str], spaced: set[str], text: str) -> None:
    for part in MARKERS.split(text):
        for space, piece in PIECES.findall(part):
            counts[piece] += 1
            if space and piece.isalpha():
                spaced.add(piece)


def word_groups() -> tuple[list[Counter[str]], set[str]]:
    """([counts of content words, of other answer words, of the rest], words after a space)."""
    rng = random.Random(CORPUS_SEED)
    answers: Counter[str] = Counter()
    prompts: Counter[str] = Counter()
    spaced: set[str] = set()
    for _ in range(CORPUS_SIZE):
        example = training_example(rng)
        _count_pieces(answers, spaced, example.response)
        _count_pieces(prompts, spaced, example.prompt)
    content = Counter(dict.fromkeys(CONTENT_WORDS, 1))
    return [content, answers - content, prompts - answers - content], spaced


def learn_merges(groups: Iterable[Counter[str]]) -> list[tuple[str, str]]:
    """Merges until every piece is whole: group by group, the heaviest pair first."""
    merges: list[tuple[str, str]] = []
    for counts in groups:
        weights = {piece: count**DAMPING for piece, count in counts.items()}
        splits = {piece: list(piece) for piece in sorted(counts)}
        for pair in merges:
            _apply(pair, splits.values())
        while pair_weights := _pair_weights(splits, weights):
            best = max(pair_weights, key=lambda pair: (round(pair_weights[pair], 6), pair))
            merges.append(best)
            _apply(best, splits.values())
    return merges


def _pair_weights(
    splits: dict[str, list[str]], weights: dict[str, float]
) -> dict[tuple[str, str], float]:
    totals: dict[tuple[str, str], float] = {}
    for piece, parts in splits.items():
        for pair in pairwise(parts):
            totals[pair] = totals.get(pair, 0.0) + weights[piece]
    return totals


def _apply(pair: tuple[str, str], splits: Iterable[list[str]]) -> None:
    for parts in splits:
        index = 0
        while index < len(parts) - 1:
            if (parts[index], parts[index + 1]) == pair:
                parts[index : index + 2] = ["".join(pair)]
            index += 1


def fitting_merges(room: int) -> list[tuple[str, str]]:
    """As many bare merges as leave room to join every whole word with its space."""
    groups, spaced = word_groups()
    merges = learn_merges(groups)
    for size in range(len(merges), 0, -1):
        whole = {"".join(pair) for pair in merges[:size]} | set("aI")
        joins = [("▁", word) for word in sorted(spaced & whole)]
        if size + len(joins) <= room:
            return merges[:size] + joins
    raise ValueError(f"no merge fits into {room} places")


def build_tokenizer() -> Tokenizer:
    """The tokenizer, with exactly `VOCABULARY` ids."""
    room = VOCABULARY - NEWLINE_ID - 1 - 256 - len(CHARACTERS) - len(MEDIA)
    merges = fitting_merges(room)

    vocabulary: dict[str, int] = {}
    for index in range(NEWLINE_ID):
        vocabulary[SPECIAL.get(index, f"<unused{index}>")] = index
    vocabulary["\n"] = NEWLINE_ID
    tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += CHARACTERS + ["".join(pair) for pair in merges]
    for token in tokens:
        vocabulary.setdefault(token, len(vocabulary))
    while len(vocabulary) < VOCABULARY - len(MEDIA):
        vocabulary[f"<unused{len(vocabulary)}>"] = len(vocabulary)
    for token in MEDIA:
        vocabulary[token] = len(vocabulary)

    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = [*SPECIAL.values(), *MEDIA]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken("\n", special=False, normalized=False)])
    return tokenizer


def tokenizer_config() -> dict[str, object]:
    """What transformers wants to know beside tokenizer.json; token names as in Gemma 4."""
    return {
        "tokenizer_class": "GemmaTokenizer",
        "backend": "tokenizers",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
        "padding_side": "left",
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
        "processor_class": "Gemma4Processor",
        "sot_token": "<|turn>",
        "eot_token": "<turn|>",
        "soc_token": "<|channel>",
        "eoc_token": "<channel|>",
        "think_token": "<|think|>",
        "escape_token": '<|"|>',
        "std_token": "<|tool>",
        "etd_token": "<tool|>",
        "stc_token": "<|tool_call>",
        "etc_token": "<tool_call|>",
        "str_token": "<|tool_response>",
        "etr_token": "<tool_response|>",
        "boi_token": "<|image>",
        "image_token": "<|image|>",
        "eoi_token": "<image|>",
        "boa_token": "<|audio>",
        "audio_token": "<|audio|>",
        "eoa_token": "<audio|>",
        "extra_special_tokens": ["<|video|>"],
    }


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.dumps(tokenizer_config(), indent=1, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
