"""From what the caller gives (text, messages, tools) to the prompt's token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlx_diffusiongemma.errors import ModelError, UsageError
from mlx_diffusiongemma.text.channels import State, channel_state
from mlx_diffusiongemma.text.chat import ChatTemplate, encode_chat
from mlx_diffusiongemma.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """Token ids of a prompt, and the channel state in which it leaves the model to go on."""

    ids: tuple[int, ...]
    state: State


def build_prompt(
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    prompt: str | Sequence[Mapping[str, Any]],
    *,
    system: str | None = None,
    thinking: bool | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    raw: bool = False,
) -> Prompt:
    """Renders messages through the checkpoint's template, or encodes raw text as it is.

    Raises UsageError for an empty prompt and for options that do not go together, ModelError when
    the checkpoint has no template.
    """
    if thinking is not None and not isinstance(thinking, bool):
        raise UsageError(f"thinking must be True, False or None, not {thinking!r:.60}.")
    if raw:
        if not isinstance(prompt, str):
            raise UsageError("A raw prompt must be text, not messages.")
        if system is not None or thinking is not None or tools:
            raise UsageError("A raw prompt takes no system message, thinking switch or tools.")
        ids = tokenizer.encode(prompt)
    else:
        if template is None:
            raise ModelError(
                "The checkpoint has no chat template.",
                "Add its chat_template.jinja to the folder, or use a raw prompt.",
            )
        ids = encode_chat(
            template, tokenizer, _messages(prompt, system), tools=tools, thinking=thinking
        )
    if not ids and raw:
        raise UsageError("The prompt is empty.")
    if not ids:
        raise ModelError(
            "The checkpoint's chat template makes an empty prompt of the messages.",
            "Fetch the template again, or use a raw prompt.",
        )
    return Prompt(tuple(ids), channel_state(tokenizer, ids))


def _messages(
    prompt: str | Sequence[Mapping[str, Any]], system: str | None
) -> list[Mapping[str, Any]]:
    messages: list[Mapping[str, Any]]
    if isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Iterable):
        raise UsageError(
            f"A prompt is text or a list of messages, not {type(prompt).__name__}.",
            'A message has the form {"role": "user", "content": "..."}.',
        )
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if system is None:
        return messages
    first = messages[0] if messages else None
    if isinstance(first, Mapping) and first.get("role") in ("system", "developer"):
        raise UsageError("The messages already begin with a system message.")
    return [{"role": "system", "content": system}, *messages]
