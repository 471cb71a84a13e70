"""Renders messages with chat_template.jinja, the only source of prompt text."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_FILE = Path(__file__).with_name("chat_template.jinja")
Message = dict[str, Any]


@cache
def _template() -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE_FILE.read_text(encoding="utf-8"))


def render(
    messages: Sequence[Message],
    *,
    tools: Sequence[Message] = (),
    thinking: bool = False,
    generation_prompt: bool = True,
) -> str:
    """The text of a conversation, `<bos>` included."""
    return _template().render(
        messages=list(messages),
        tools=list(tools) or None,
        enable_thinking=thinking,
        add_generation_prompt=generation_prompt,
        bos_token="<bos>",
    )
