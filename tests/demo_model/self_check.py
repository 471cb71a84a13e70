"""Checks the chat format: run `python -m tests.demo_model.self_check`.

Every task's prompt plus response must be the byte-exact start of what the template renders once
the response has become part of the history; fixed strings pin the tool and thinking forms.
"""

import json
import random
from typing import Any

from .chat_format import Message, render
from .dialogue import (
    MIX,
    TEST_TASKS,
    WEATHER_TOOL,
    Example,
    held_out_example,
    tool_answer_example,
    tool_call_example,
    training_example,
)

EMPTY_THOUGHT = "<|channel>thought\n<channel|>"
DECLARATION = (
    '<|turn>system\n<|tool>declaration:get_weather{description:<|"|>Get the weather<|"|>,'
    'parameters:{properties:{city:{type:<|"|>STRING<|"|>}},required:[<|"|>city<|"|>],'
    'type:<|"|>OBJECT<|"|>}}<tool|><turn|>\n'
)
CALL = '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|>'
RESPONSE = '<|tool_response>response:get_weather{value:<|"|>rainy<|"|>}<tool_response|>'


def answered(example: Example) -> Message:
    """The response as an assistant message."""
    if example.response.startswith("<|tool_call>"):
        city = example.response.split('<|"|>')[1]
        call: dict[str, Any] = {"name": "get_weather", "arguments": {"city": city}}
        return {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
    return {"role": "assistant", "content": example.response.removesuffix("<turn|>")}


def check_example(example: Example) -> None:
    """What the model reads and writes equals what the history shows, thoughts left out."""
    written = example.prompt.removesuffix(EMPTY_THOUGHT) + example.response
    before, thought, after = written.rpartition("<channel|>")
    if thought:  # the history does not repeat the thought
        before = before[: before.rindex("<|channel>thought\n")]
    written = before + after
    shown = render(
        (*example.messages, answered(example)),
        tools=example.tools,
        thinking=example.thinking,
        generation_prompt=False,
    )
    if example.response.endswith("<|tool_response>"):
        written = written.removesuffix("<|tool_response>")
    assert shown.removesuffix("\n") == written, (shown, written)


def check_fixed_forms() -> None:
    question = "<|turn>user\nHow is it?<turn|>\n"
    call = tool_call_example("Rome", "How is it?")
    assert call.prompt == f"<bos>{DECLARATION}{question}<|turn>model\n{EMPTY_THOUGHT}"
    assert call.response == f"{CALL}<|tool_response>"
    answer = tool_answer_example("Rome", "How is it?", "rainy")
    assert answer.prompt == f"<bos>{DECLARATION}{question}<|turn>model\n{CALL}{RESPONSE}"
    history: list[Message] = [
        {"role": "developer", "content": " Be brief. "},
        {"role": "user", "content": [{"type": "text", "text": " Hi! "}]},
        {"role": "assistant", "content": "<|channel>thought\nHm.\n<channel|> Hello!"},
        {"role": "user", "content": "Bye!"},
    ]
    assert render(history, thinking=True) == (
        "<bos><|turn>system\n<|think|>\nBe brief.<turn|>\n<|turn>user\nHi!<turn|>\n"
        "<|turn>model\nHello!<turn|>\n<|turn>user\nBye!<turn|>\n<|turn>model\n"
    )


def check_tool_variants() -> None:
    """JSON-text arguments, mapping results, several values, and what follows a tool loop."""
    call = {"name": "get_weather", "arguments": {"days": 2, "brief": True, "in": ["Rome"]}}
    messages: list[Message] = [
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": call}]},
        {"role": "tool", "content": {"sky": "clear", "degrees": 21}},
        {"role": "assistant", "content": "Clear."},
        {"role": "user", "content": "Thanks!"},
    ]
    text = render(messages, tools=(WEATHER_TOOL,))
    assert text == (
        f"<bos>{DECLARATION}<|turn>user\nHow is it?<turn|>\n<|turn>model\n"
        '<|tool_call>call:get_weather{brief:true,days:2,in:[<|"|>Rome<|"|>]}<tool_call|>'
        '<|tool_response>response:get_weather{degrees:21,sky:<|"|>clear<|"|>}<tool_response|>'
        f"Clear.<turn|>\n<|turn>user\nThanks!<turn|>\n<|turn>model\n{EMPTY_THOUGHT}"
    )
    assert json.loads(json.dumps(messages)) == messages


def main() -> None:
    rng = random.Random(0)
    check_fixed_forms()
    check_tool_variants()
    for task in (*MIX, *TEST_TASKS):
        for _ in range(50):
            check_example(held_out_example(rng, task))
    for _ in range(500):
        check_example(training_example(rng))
    print("the template renders every task's text")


if __name__ == "__main__":
    main()
