"""An example as token ids: prompt, response, and which response tokens are hidden."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from .dialogue import Example


@dataclass(frozen=True)
class Encoded:
    """Token ids of one example; `hidden[i]` says whether response token i may be corrupted."""

    task: str
    prompt: list[int]
    response: list[int]
    hidden: list[bool]


def encode_example(tokenizer: Tokenizer, example: Example) -> Encoded:
    response: list[int] = []
    hidden: list[bool] = []
    for text, is_hidden in example.segments:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        response += ids
        hidden += [is_hidden] * len(ids)
    prompt = tokenizer.encode(example.prompt, add_special_tokens=False).ids
    return Encoded(example.task, prompt, response, hidden)
