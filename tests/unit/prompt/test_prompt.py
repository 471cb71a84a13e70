"""What may be given as a prompt, and what is said about everything else."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_diffusiongemma.errors import ModelError, UsageError
from mlx_diffusiongemma.prompt import build_prompt
from mlx_diffusiongemma.text.chat import ChatTemplate
from tests.unit.text import small

HI = [{"role": "user", "content": "hello"}]


def build(prompt: Any, template: str = small.TEMPLATE, **options: Any) -> Any:
    return build_prompt(small.tokenizer("library"), ChatTemplate(template), prompt, **options)


@pytest.mark.parametrize("prompt", [None, 5, b"hi", HI[0], 1.5, True])
@pytest.mark.parametrize("system", [None, "be brief"])
def test_what_is_no_prompt_is_named(prompt: Any, system: str | None) -> None:
    with pytest.raises(UsageError, match=f"not {type(prompt).__name__}"):
        build(prompt, system=system)


@pytest.mark.parametrize("prompt", [[None], ["hello"], [b"hello"]])
def test_a_system_message_before_things_that_are_no_messages(prompt: Any) -> None:
    with pytest.raises(UsageError, match="Message 2"):
        build(prompt, system="be brief")


def test_messages_may_come_from_a_generator() -> None:
    assert build(message for message in HI).ids == build(HI).ids


@pytest.mark.parametrize("thinking", ["yes", 1, "no"])
def test_thinking_is_a_switch(thinking: Any) -> None:
    with pytest.raises(UsageError, match="thinking must be True, False or None"):
        build(HI, thinking=thinking)


def test_a_template_that_renders_nothing_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="empty prompt"):
        build(HI, template="{# nothing #}")
