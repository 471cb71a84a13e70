"""A template that wants the machine for itself, or a way out of the sandbox, gets one sentence."""

from __future__ import annotations

import subprocess
import sys
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_diffusiongemma.errors import DiffusionGemmaError, ModelError, UsageError
from mlx_diffusiongemma.text import limits
from mlx_diffusiongemma.text.chat import ChatTemplate

USER = [{"role": "user", "content": "hello"}]

# The start of a loop that has a name to keep what it makes in.
KEEP = "{%% set n = namespace(x=%s) %%}{%% for i in range(99) %%}"
BOMBS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops with a filter": (
        "{% for a in range(99999) %}{% for b in range(9999) if false %}{% endfor %}{% endfor %}"
    ),
    "recursive macro": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "branching macro": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "recursive loop": ("{% for a in [messages] recursive %}{{ loop([a, a]) }}{% endfor %}"),
    "times": "{{ 'a' * 10 ** 10 }}",
    "times, unused": "{% set x = 'a' * 10000000000 %}",
    "times in a test": "{% if ('a' * 10000000000) | length > 3 %}x{% endif %}",
    "times a list": "{{ [0] * 10 ** 10 }}",
    "times a list of lists": "{{ [[0] * 900000] * 900000 }}",
    "reversed times": "{{ 10000000000 * 'ab' }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "power of powers": (
        "{% set n = namespace(x=9) %}{% for i in range(999) %}{% set n.x = n.x * n.x %}{% endfor %}"
    ),
    "shifted power": "{{ 2 ** 100000 }}",
    "doubling with +": (KEEP % "'a'" + "{% set n.x = n.x + n.x %}{% endfor %}"),
    "doubling with ~": (KEEP % "'a'" + "{% set n.x = n.x ~ n.x %}{% endfor %}"),
    "doubling lists": (KEEP % "[1]" + "{% set n.x = n.x + n.x %}{% endfor %}"),
    "doubling a nest": (KEEP % "[]" + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}"),
    "doubling a nest of mappings": (
        "{% set n = namespace(x={}) %}{% for i in range(99) %}{% set n.x = {'a': n.x, 'b': n.x} %}"
        "{% endfor %}{{ n.x | tojson }}"
    ),
    "doubling with dict": (
        "{% set n = namespace(x=1) %}{% for i in range(99) %}{% set n.x = dict(a=n.x, b=n.x) %}"
        "{% endfor %}{{ n.x }}"
    ),
    "doubling a tuple": (
        "{% set n = namespace(x=1) %}{% for i in range(99) %}{% set n.x = (n.x, n.x) %}{% endfor %}"
        "{{ n.x | string }}"
    ),
    "doubling a block": (
        "{% set n = namespace(x='a') %}{% for i in range(99) %}"
        "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}"
    ),
    "doubling with join": (
        "{% set n = namespace(x='a') %}{% for i in range(99) %}"
        "{% set n.x = [n.x, n.x] | join %}{% endfor %}"
    ),
    "doubling with str.join": (
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
        "{% set n.x = n.x.join(n.x) %}{% endfor %}"
    ),
    "doubling with replace": (
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}"
        "{% set n.x = n.x | replace('a', n.x) %}{% endfor %}"
    ),
    "doubling with str.replace": (
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}"
        "{% set n.x = n.x.replace('a', n.x) %}{% endfor %}"
    ),
    "doubling with escapes": (
        "{% set n = namespace(x='&') %}{% for i in range(99) %}"
        "{% set n.x = n.x | string | urlencode %}{% set n.x = n.x + n.x %}{% endfor %}"
    ),
    "doubling with tojson": (
        "{% set n = namespace(x='\"') %}{% for i in range(99) %}{% set n.x = n.x | tojson %}"
        "{% endfor %}"
    ),
    "doubling with format": (
        "{% set n = namespace(x='a') %}{% for i in range(99) %}"
        "{% set n.x = '%s%s' % (n.x, n.x) %}{% endfor %}"
    ),
    "doubling with the format filter": (
        "{% set n = namespace(x='a') %}{% for i in range(99) %}"
        "{% set n.x = '%(a)s%(a)s' | format(a=n.x) %}{% endfor %}"
    ),
    "a wide %": "{{ '%9999999999d' % 1 }}",
    "a wide % by argument": "{{ '%*d' % (999999999, 1) }}",
    "a precise %": "{{ '%.999999999f' % 1 }}",
    "a wide format": "{{ '%9999999999d' | format(1) }}",
    "str.format": "{{ '{:9999999999}'.format(1) }}",
    "format_map": "{{ '{a:9999999999}'.format_map({'a': 1}) }}",
    "str.center": "{{ 'a'.center(9999999999) }}",
    "str.ljust": "{{ 'a'.ljust(9999999999) }}",
    "str.zfill": "{{ 'a'.zfill(9999999999) }}",
    "str.expandtabs": "{{ '\\t'.expandtabs(9999999999) }}",
    "int.to_bytes": "{{ (1).to_bytes(9999999999, 'big') }}",
    "center": "{{ 'a' | center(9999999999) }}",
    "indent": "{{ 'a\\nb' | indent(9999999999) }}",
    "indent of json": "{{ [1] | tojson(indent=9999999999) }}",
    "batch": "{{ [1] | batch(9999999999, 0) | list }}",
    "slice": "{{ [1] | slice(9999999999) | list }}",
    "round": "{{ 1.5 | round(9999999999, 'ceil') }}",
    "lipsum": "{{ lipsum(n=9999999) }}",
    "sum of lists": "{{ [[1], [2]] | sum(start=[]) }}",
    "range": "{{ range(10 ** 9) | list }}",
    "strftime": "{{ strftime_now('%9999999d') }}",
    "long output": "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "long fixed output": "{% for a in range(99999) %}" + "x" * 1000 + "{% endfor %}",
    "long hidden output": (
        "{% set x %}{% for a in range(99999) %}" + "x" * 1000 + "{% endfor %}{% endset %}"
    ),
    "many long strings": (
        "{% set n = namespace(l=[]) %}{% for i in range(9999) %}"
        "{% set n.l = n.l + ['x' * 4000000] %}{% endfor %}"
    ),
    "call block": "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}x{% endcall %}",
    "deep parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep sum": "{{ " + "+".join(["1"] * 20_000) + " }}",
    "deep ifs": "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "repeated filters": "{{ 'x'" + " | replace('x', 'xxxxxxxxxx')" * 40 + " }}",
    "namespace of namespaces": (
        "{% set n = namespace(x=1) %}{% for i in range(99) %}"
        "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}{{ raise_exception('x') }}"
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SECONDS", 2.0)
    monkeypatch.setattr(limits, "BASE_TEXT", 400_000)
    monkeypatch.setattr(limits, "BASE_WORK", 30_000_000)
    began = thread_time()
    with pytest.raises((ModelError, UsageError)) as info:
        ChatTemplate(BOMBS[name]).render(USER)
    assert thread_time() - began < 20
    assert "\n" not in info.value.message
    assert info.value.message.endswith(".")
    assert len(info.value.message) < 500
    if name not in ("namespace of namespaces",):
        assert isinstance(info.value, ModelError)


def test_the_real_limits_hold_memory_and_time() -> None:
    """In a process of its own with little memory to give: it must end well, not be killed."""
    program = """
import resource, sys
from mlx_diffusiongemma.errors import ModelError
from mlx_diffusiongemma.text.chat import ChatTemplate
from tests.security.test_template_limits import BOMBS, USER
if sys.platform == "linux":
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for name in ("times", "doubling with ~", "many long strings", "long output", "power"):
    try:
        ChatTemplate(BOMBS[name]).render(USER)
    except ModelError as error:
        assert "too large" not in error.message, error.message
    else:
        sys.exit(name)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout == "done\n", done.stderr


ESCAPES = (
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ [] | map(attribute='__class__') | list }}",
    "{{ ['x'] | map(attribute='__class__') | list }}",
    "{{ 'x' | attr('__class__') }}",
    "{{ raise_exception.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace(__class__=1) }}",
    "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "{% set n = namespace() %}{{ n.__init__.__globals__ }}{{ n._values }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ joiner.__init__.__globals__.os }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ ('{0.__class__}' | string).format_map({}) }}",
    "{{ (messages | string).format }}",
    "{% macro m() %}{% endmacro %}{{ m.__globals__ }}{{ m._func }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{{ messages[0].pop('role') }}",
    "{% import 'os' as os %}",
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{{ get_flashed_messages.__globals__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ range.__class__ }}",
    "{{ dict.mro() }}",
)


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    try:
        text = ChatTemplate(source).render(messages)
    except (ModelError, UsageError) as error:
        text = error.message
        assert "\n" not in text
    for word in ("<class", "object at", "__builtins__", "root:", "'os'", "<module"):
        assert word not in text
    assert messages == [{"role": "user", "content": "x"}]


SNIPPETS = st.lists(
    st.sampled_from(
        [
            *("{{", "}}", "{%", "%}", "{#", "#}", "{%-", "-%}", " ", "'", '"', "(", ")", "[", "]"),
            *("for a in messages", "endfor", "if a", "else", "endif", "set x = ", "macro f(a)"),
            *("endmacro", "f(1)", "messages", "x", "a", ".content", "['role']", " | ", "trim"),
            *("tojson", "join", "replace('a', 'b')", " * ", " + ", " ~ ", "10", "9999999999"),
            *("namespace(x=1)", "range(99999)", "break", "raise_exception('no')", "loop.index"),
            *("generation", "endgeneration", "filter upper", "endfilter", "none", "{", "}", ":"),
        ]
    ),
    max_size=25,
)


@given(snippets=SNIPPETS)
def test_any_template_gives_text_or_one_sentence(snippets: list[str]) -> None:
    try:
        text = ChatTemplate("".join(snippets)).render(USER)
    except DiffusionGemmaError as error:
        assert "\n" not in error.message
        assert error.message.endswith(".")
    else:
        assert isinstance(text, str)


def test_the_allowance_grows_with_the_messages() -> None:
    """Long inputs are not mistaken for bombs."""
    template = ChatTemplate("{% for m in messages %}{{ m.content | trim }}{% endfor %}")
    text = "word " * 1_200_000
    assert template.render([{"role": "user", "content": text}]) == text.strip()
    many = [{"role": "user", "content": "x"}] * 2000
    looks_back = (
        "{% for m in messages %}{% for k in range(loop.index0) %}{% endfor %}{{ m.content }}"
        "{% endfor %}"
    )
    assert ChatTemplate(looks_back).render(many) == "x" * 2000
