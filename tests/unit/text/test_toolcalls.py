"""The text of a tool call: what it means, what is forgiven, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_diffusiongemma.errors import DiffusionGemmaError
from mlx_diffusiongemma.text.toolcalls import ToolCall, ToolCallError, parse_tool_call

Q = '<|"|>'


def test_all_kinds_of_values() -> None:
    call = parse_tool_call(
        f"call:get_weather{{city:{Q}New York, {{NY}}{Q},days:3,metric:true,wind:false,"
        f"none:null,t:-1.5e2,where:{{lat:1,tags:[{Q}a{Q},{Q}{Q},[1,2]]}},empty:{{}},list:[]}}"
    )
    assert call == ToolCall(
        "get_weather",
        {
            "city": "New York, {NY}",
            "days": 3,
            "metric": True,
            "wind": False,
            "none": None,
            "t": -150.0,
            "where": {"lat": 1, "tags": ["a", "", [1, 2]]},
            "empty": {},
            "list": [],
        },
    )


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("call:f{}", {}),
        (" call: f { a : 1 , b : 2 }\n", {"a": 1, "b": 2}),
        ('call:f{"a b":"x\\n\\"y\\"",c:"ta\tb"}', {"a b": 'x\n"y"', "c": "ta\tb"}),
        (f"call:f{{{Q}key{Q}:{Q}a\nb{Q}}}", {"key": "a\nb"}),
        ("call:f{when:12:30,url:http://a.b/c?d=e}", {"when": "12:30", "url": "http://a.b/c?d=e"}),
        ("call:f{city:New York}", {"city": "New York"}),
        ("call:f{a:[1,2,],}", {"a": [1, 2]}),
        ("call:f{a:True,b:NULL}", {"a": True, "b": None}),
        ("call:f{a:007,b:1.,c:1e999,d:-}", {"a": 7, "b": "1.", "c": "1e999", "d": "-"}),
        ("call:f{a:" + "9" * 500 + "}", {"a": "9" * 500}),
        (f"call:f{{a:{Q}}} ] {{ , :{Q}}}", {"a": "} ] { , :"}),
        ("call:f{a:1,a:2}", {"a": 2}),
    ],
)
def test_forgiven(text: str, arguments: dict[str, Any]) -> None:
    assert parse_tool_call(text) == ToolCall("f", arguments)


def test_names() -> None:
    for name in ("f", "get_weather", "ns.tool", "ns:tool", "a/b", "tool-1", "größe"):
        assert parse_tool_call(f"call:{name}{{}}").name == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "call:",
        "call:f",
        "call:{}",
        "f{}",
        "call:f{",
        "call:f{a",
        "call:f{a:",
        "call:f{a:}",
        "call:f{a:1",
        "call:f{a:[1,2}",
        "call:f{a:1]",
        "call:f{a 1}",
        "call:f{:1}",
        "call:f{a:1}}",
        "call:f{a:1} and more",
        f"call:f{{a:{Q}x}}",
        'call:f{a:"x}',
        'call:f{a:"\\q"}',
        "call:f{a:1 b:2}",
        "call:a b{}",
        "call:f{a:" + "[" * 100 + "]" * 100 + "}",
        "call:f{a:" + "{b:" * 100_000,
        "call:" + "a/" * 50_000,
        "call:" + " " * 50_000,
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ToolCallError) as info:
        parse_tool_call(text)
    assert isinstance(info.value, DiffusionGemmaError)
    assert "\n" not in info.value.message
    assert len(info.value.message) < 300


def test_a_call_as_part_of_a_message() -> None:
    assert ToolCall("f", {"a": 1}).to_message() == {
        "type": "function",
        "function": {"name": "f", "arguments": {"a": 1}},
    }
