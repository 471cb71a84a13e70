"""What counts as a message or a tool, and how it is put into form."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from mlx_diffusiongemma.errors import UsageError
from mlx_diffusiongemma.text.messages import prepare_messages, prepare_tools


def one(message: dict[str, Any]) -> dict[str, Any]:
    (prepared,) = prepare_messages([message])
    return prepared


def test_the_callers_messages_are_left_alone() -> None:
    part = {"type": "text", "text": "<|channel>thought\nhm<channel|>Hi"}
    message = {"role": "model", "content": [part], "tool_calls": None}
    prepared = one(message)
    assert prepared == {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}
    assert part["text"].startswith("<|channel>")
    assert message["tool_calls"] is None


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "model", "tool"])
def test_roles(role: str) -> None:
    expected = "assistant" if role == "model" else role
    assert one({"role": role, "content": "x"}) == {"role": expected, "content": "x"}


@pytest.mark.parametrize(
    ("messages", "names"),
    [
        ([], "no messages"),
        ("hello", "list of mappings"),
        ({"role": "user", "content": "x"}, "list of mappings"),
        (["hello"], "Message 1 is a str"),
        ([{"content": "x"}], "Message 1 has the unknown role"),
        ([{"role": "user\n", "content": "x"}], "unknown role"),
        ([{"role": 5, "content": "x"}], "unknown role"),
        ([{"role": "user", "content": "x"}, {"role": "user"}], "Message 2 .user. has no content"),
        ([{"role": "user", "content": None}], "no content"),
        ([{"role": "user", "content": 5}], "int as content"),
        ([{"role": "user", "content": b"x"}], "bytes as content"),
        ([{"role": "user", "content": {"a": 1}}], "mapping as content"),
        ([{"role": "user", "content": ["x"]}], "str where a content part"),
        ([{"role": "user", "content": [{"type": "text"}]}], "not text"),
        ([{"role": "user", "content": [{"type": "thing"}]}], "not text"),
        ([{"role": "user", "content": "a\udcffb"}], "surrogate"),
        ([{"role": "user", "content": "x", "name": object()}], "holds a object"),
        ([{"role": "user", "content": "x", "more": {1: 2}}], "key that is not text"),
        ([{"role": "assistant", "tool_calls": {}}], "not a list"),
        ([{"role": "assistant", "tool_calls": [{}]}], "without a function name"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": " "}}]}], "function name"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}],
            "arguments are not a mapping",
        ),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"name": "f", "arguments": '{"a": "\\ud800"}'}],
                }
            ],
            "surrogate",
        ),
    ],
)
def test_refused(messages: Any, names: str) -> None:
    with pytest.raises(UsageError, match=names) as info:
        prepare_messages(messages)
    assert info.value.message.endswith(".")


@pytest.mark.parametrize("kind", ["image", "image_url", "input_image", "audio", "video"])
def test_text_only_for_now(kind: str) -> None:
    part = {"type": kind, kind: "data:"}
    with pytest.raises(UsageError, match="reads text only"):
        one({"role": "user", "content": [{"type": "text", "text": "see"}, part]})


def test_nested_beyond_reason() -> None:
    value: Any = "x"
    for _ in range(100):
        value = [value]
    with pytest.raises(UsageError, match="nested too deeply"):
        one({"role": "user", "content": "x", "more": value})


def test_tool_calls_of_other_interfaces() -> None:
    prepared = one(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "function": {"name": "f", "arguments": '{"a": [1, null]}'}},
                {"name": "g"},
                {"function": {"name": "h", "arguments": "not json"}},
            ],
        }
    )
    assert prepared["content"] == ""
    assert [call["function"] for call in prepared["tool_calls"]] == [
        {"name": "f", "arguments": {"a": [1, None]}},
        {"name": "g", "arguments": {}},
        {"name": "h", "arguments": "not json"},
    ]
    assert prepared["tool_calls"][0]["id"] == "1"
    assert "tool_calls" not in one({"role": "assistant", "content": "x", "tool_calls": []})


def test_a_mapping_as_a_tools_result_is_json() -> None:
    assert one({"role": "tool", "content": {"a": "é", "b": [1]}})["content"] == (
        '{"a": "é", "b": [1]}'
    )


def test_subclasses_become_plain_values() -> None:
    class Role(StrEnum):
        USER = "user"

    message = MappingProxyType({"role": Role.USER, "content": "x", "flags": (True, 1.5, 2)})
    (prepared,) = prepare_messages((message,))
    assert prepared == {"role": "user", "content": "x", "flags": [True, 1.5, 2]}
    assert type(prepared["role"]) is str


def test_tools() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    wrapped = {"type": "function", "function": function}
    assert prepare_tools(None) is None
    assert prepare_tools([]) == []
    assert prepare_tools([wrapped, function]) == [wrapped, wrapped]


@pytest.mark.parametrize(
    "tools",
    ["f", {"name": "f"}, [print], [{}], [{"function": {}}], [{"name": 5}], [{"function": 5}]],
)
def test_refused_tools(tools: Any) -> None:
    with pytest.raises(UsageError, match=r"^Tools? "):
        prepare_tools(tools)
