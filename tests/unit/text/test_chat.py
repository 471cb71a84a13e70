"""Finding a chat template, rendering with it, and the ids of the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma.errors import ModelError, UsageError
from mlx_diffusiongemma.text.chat import ChatTemplate, encode_chat, load_template
from mlx_diffusiongemma.text.tokenizer import load_tokenizer
from tests.unit.text import small

USER = [{"role": "user", "content": "hello"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"properties": {"city": {"type": "string", "enum": ["a", "b<c"]}}},
        },
    }
]
CALL = {"id": "1", "function": {"name": "weather", "arguments": {"city": "Rome", "n": 1}}}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one turn": USER,
    "system only": [{"role": "system", "content": "Be kind."}],
    "empty": [{"role": "user", "content": ""}],
    "two user turns": [*USER, {"role": "user", "content": 'a < b > c | "d"'}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": " a "}]}],
    "no parts": [{"role": "user", "content": []}],
    "history": [
        {"role": "developer", "content": "Be\nkind."},
        *USER,
        {"role": "assistant", "content": "<|channel>thought\nhm\n<channel|>Hi <b>!"},
        {"role": "user", "content": "日本 é 👍\n\n  code:\n\tx = 1"},
    ],
    "tools": [
        *USER,
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny > rainy"},
    ],
}


@pytest.mark.parametrize("kind", ["library", "pieces"])
@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("tools", [None, [], TOOLS])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_ids_are_those_of_the_rendered_text(
    name: str, tools: Any, thinking: bool | None, kind: str
) -> None:
    template, tokenizer = small.template(), small.tokenizer(kind)
    for add_generation_prompt in (True, False):
        options: dict[str, Any] = {
            "tools": tools,
            "thinking": thinking,
            "add_generation_prompt": add_generation_prompt,
        }
        text = template.render(CONVERSATIONS[name], **options)
        ids = encode_chat(template, tokenizer, CONVERSATIONS[name], **options)
        assert ids == tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert ids.count(2) == 1


def test_what_the_template_writes() -> None:
    template = small.template()
    end = "<|turn>model\n<|channel>thought\n<channel|>"
    assert template.render(CONVERSATIONS["history"]) == (
        "<bos><|turn>system\nBe\nkind.<turn|>\n<|turn>user\nhello<turn|>\n"
        "<|turn>model\nHi <b>!<turn|>\n<|turn>user\n日本 é 👍\n\n  code:\n\tx = 1<turn|>\n" + end
    )
    assert template.render(CONVERSATIONS["system only"]) == (
        "<bos><|turn>system\nBe kind.<turn|>\n" + end
    )
    assert template.render(CONVERSATIONS["empty"]) == "<bos><|turn>user\n<turn|>\n" + end
    assert template.render(CONVERSATIONS["two user turns"]).count("<|turn>user\n") == 2


def test_the_thinking_switch_is_passed_on_only_when_it_is_set() -> None:
    template = ChatTemplate(
        "{{ 'unset' if enable_thinking is not defined else enable_thinking | string }}"
    )
    assert template.render(USER) == "unset"
    assert template.render(USER, thinking=None) == "unset"
    assert template.render(USER, thinking=True) == "True"
    assert template.render(USER, thinking=False) == "False"


def test_a_growing_chat_is_one_prompt_each_time() -> None:
    """One begin token and one system turn whatever the turn, and never an old thought."""
    template, tokenizer = small.template(), small.tokenizer("library")
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}]
    for turn in range(1, 4):
        messages.append({"role": "user", "content": f"question {turn}"})
        ids = encode_chat(template, tokenizer, messages, thinking=True)
        text = tokenizer.decode(ids)
        assert ids.count(2) == 1
        assert text.count("<|turn>system\n") == 1
        assert text.count("<|turn>user\n") == turn
        assert text.count("<|turn>model\n") == turn
        assert "secret" not in text
        assert text.count("answer") == turn - 1
        content = f"<|channel>thought\nsecret {turn}\n<channel|>answer {turn}"
        messages.append({"role": "assistant", "content": content})


def test_old_thoughts_go_even_when_the_template_keeps_everything() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}")
    assert (
        template.render([{"role": "model", "content": "<|channel>thought\nhm\n<channel|>Hi"}])
        == "assistant:Hi\n"
    )


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_where_the_template_is_found(tmp_path: Path) -> None:
    assert load_template(tmp_path) is None
    write(tmp_path, "tokenizer_config.json", json.dumps({"chat_template": "config"}))
    assert rendered(tmp_path) == "config"
    write(tmp_path, "chat_template.json", json.dumps({"chat_template": "json"}))
    assert rendered(tmp_path) == "json"
    write(tmp_path, "chat_template.jinja", "\ufeffjinja")
    assert rendered(tmp_path) == "jinja"


def rendered(folder: Path, tools: Any = None) -> str:
    template = load_template(folder)
    assert template is not None
    return template.render(USER, tools=tools)


def test_a_list_of_templates(tmp_path: Path) -> None:
    entries = [
        {"name": "rag", "template": "rag"},
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "default"},
    ]
    write(tmp_path, "tokenizer_config.json", json.dumps({"chat_template": entries}))
    assert rendered(tmp_path) == "default"
    assert rendered(tmp_path, TOOLS) == "tools"
    write(tmp_path, "tokenizer_config.json", json.dumps({"chat_template": entries[:1]}))
    assert rendered(tmp_path) == "rag"
    assert rendered(tmp_path, TOOLS) == "rag"


def test_token_variables_come_from_the_config(tmp_path: Path) -> None:
    write(tmp_path, "chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ sot_token }}{{ x }}")
    assert rendered(tmp_path) == "<bos><eos>"
    config = {"bos_token": {"content": "[B]"}, "eos_token": None, "sot_token": "[T]"}
    write(tmp_path, "tokenizer_config.json", json.dumps(config))
    assert rendered(tmp_path) == "[B][T]"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chat_template.jinja", "{% for %}"),
        ("chat_template.jinja", "{{ 'open"),
        ("chat_template.jinja", "{% if true %}"),
        ("chat_template.jinja", "{{ x | no_such_filter }}"),
        ("chat_template.jinja", "x" * 300_000),
        ("chat_template.jinja", "x" * 2_000_000),
        ("chat_template.json", "{}"),
        ("chat_template.json", "["),
        ("chat_template.json", '{"chat_template": 5}'),
        ("tokenizer_config.json", '{"chat_template": 5}'),
        ("tokenizer_config.json", '{"chat_template": []}'),
        ("tokenizer_config.json", '{"chat_template": [{"name": "default"}]}'),
        ("tokenizer_config.json", '{"chat_template": ["x"]}'),
        ("tokenizer_config.json", '{"chat_template": "{{"}'),
    ],
)
def test_damaged_templates(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, name, text)
    with pytest.raises(ModelError, match=name) as info:
        load_template(tmp_path)
    assert "\n" not in info.value.message
    assert info.value.message.endswith(".")


def test_a_template_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe{{ x }}")
    with pytest.raises(ModelError, match="not UTF-8"):
        load_template(tmp_path)


def test_the_template_may_refuse_the_messages() -> None:
    template = ChatTemplate("{{ raise_exception('Roles must\\n alternate\\x1b[31m') }}")
    with pytest.raises(UsageError) as info:
        template.render(USER)
    assert info.value.message == (
        "The model's chat template refuses the messages: Roles must alternate?[31m."
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ messages[5].content.x }}", "no element 5"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages + 1 }}", "TypeError"),
        ("{{ none.x.y }}", "no attribute 'x'"),
        ("{% include 'x' %}", "TypeError"),
        ("{{ '\\ud800' }}", "not valid Unicode"),
    ],
)
def test_a_template_that_fails(source: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as info:
        encode_chat(ChatTemplate(source), small.tokenizer("library"), USER)
    assert "\n" not in info.value.message


def test_features_templates_use() -> None:
    source = """{%- for m in messages %}
    {%- if loop.index > 3 %}{% break %}{% endif %}
    {%- generation %}{{ m['content'] | tojson }}{% endgeneration %}
{%- endfor %}
{{- {'b': '<é>', 'a': [1, none]} | tojson(sort_keys=true) }}
{{- {'a': 1} | tojson(indent=2) }}
{{- strftime_now('%Y') | length }}
{{- 'a-%s-%03d' % ('b', 7) }}{{ '%s|%s' | format(1, 'x') }}
{{- ['a', 'b'] | join(', ') }}{{ 'x' * 3 ~ 1 ~ none }}{{ 'a,b'.split(',')[1].upper() }}
{{- [1, 2, 3] | sum }}{{ 2 ** 8 }}{{ 7 % 4 }}{{ (1.26) | round(1) }}{{ 'ab' | replace('a', '') }}
{{- 'a\\nb' | indent(2) }}{{ ['x'] + ['y'] }}{{ 'ab' | list | length }}{{ dict(a=1) }}
{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}
{%- set text %}{{ 'k' }}{% filter upper %}z{% endfilter %}{% endset %}{{ text }}{{ nothing }}
{%- set big %}{% filter upper %}q{% endfilter %}{% endset %}{{ big.lower() }}
{{- [3, 1] | sort | first }}{{ {'b': 1, 'a': 2} | dictsort }}{{ 'x' in 'xyz' }}{{ 'é' | trim }}
{{- [{'k': 'v'}] | map(attribute='k') | join }}{{ [1, 2] | batch(1) | list }}"""
    expected = (
        '"a\\"<b>"{"a": [1, null], "b": "<é>"}{\n  "a": 1\n}4a-b-0071|xa, bxxx1NoneB'
        "625631.3ba\n  b['x', 'y']2{'a': 1}\n10kZq1[('a', 2), ('b', 1)]Trueév[[1], [2]]"
    )
    found = ChatTemplate(source).render([{"role": "user", "content": 'a"<b>'}])
    assert found == expected


def test_a_folder_as_a_whole(tmp_path: Path) -> None:
    folder = small.write_library_folder(tmp_path)
    template = load_template(folder)
    assert template is not None
    ids = encode_chat(template, load_tokenizer(folder), USER)
    newline, hello = 107, load_tokenizer(folder).encode("hello")
    user, model = (load_tokenizer(folder).encode(word) for word in ("user", "model"))
    thought = load_tokenizer(folder).encode("thought")
    assert ids == [
        *(2, 105, *user, newline, *hello, 106, newline),
        *(105, *model, newline, 100, *thought, newline, 101),
    ]
