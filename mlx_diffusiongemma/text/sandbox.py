"""Runs a chat template from a model folder as what it is: a stranger's program.

Jinja's immutable sandbox keeps it away from Python; on top of that only plain methods of plain
values can be called, and text, loops and time are limited (limits.py). What to render and what the
result means is left to chat.py.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mlx_diffusiongemma.errors import ModelError, UsageError
from mlx_diffusiongemma.text import filters, limits
from mlx_diffusiongemma.text.files import one_line
from mlx_diffusiongemma.text.rewrite import rewrite

_TEXT_METHODS = frozenset(
    (
        *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha"),
        *("isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isspace"),
        *("istitle", "isupper", "join", "lower", "lstrip", "partition", "removeprefix"),
        *("removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split"),
        *("splitlines", "startswith", "strip", "swapcase", "title", "upper"),
    )
)
_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, _TEXT_METHODS),
    (dict, frozenset({"get", "items", "keys", "values"})),
    (list, frozenset({"count", "index"})),
    (tuple, frozenset({"count", "index"})),
    (int, frozenset()),
    (float, frozenset()),
    (bytes, frozenset()),
    (range, frozenset()),
)


_ADDED_BY_JINJA = ("_loop_vars", "_block_vars")


class CompiledTemplate:
    """One template, checked and compiled."""

    def __init__(self, source: str, name: str) -> None:
        """Compile a template's text; `name` is how messages call it. ModelError when it is bad."""
        self._name = name
        if len(source) > limits.MAX_SOURCE:
            raise ModelError(
                f"{name} is {len(source)} characters long, more than the {limits.MAX_SOURCE} "
                "allowed.",
                "This does not look like a chat template.",
            )
        environment = _Environment()
        try:
            self._template: Template = environment.from_string(rewrite(environment.parse(source)))
        except TemplateSyntaxError as error:
            reason = one_line(error.message or "")
            raise ModelError(f"{name} is damaged in line {error.lineno}: {reason}.") from error
        except (TemplateError, RecursionError, MemoryError, ValueError, SyntaxError) as error:
            raise ModelError(f"{name} cannot be compiled: {_reason(error)}.") from error

    def render(self, variables: Mapping[str, Any], budget: limits.Budget) -> str:
        """The rendered text.

        UsageError with the template's own words when it refuses the messages, ModelError when it
        fails or wants more than its budget.
        """
        token = limits.set_current(budget)
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(variables):
                parts.append(part)
                size += len(part)
                if size > budget.max_text:
                    raise limits.LimitReached(
                        f"it makes a text of more than {budget.max_text} characters"
                    )
        except filters.TemplateRefusal as error:
            reason = one_line(error.message or "").rstrip(".") or "no reason given"
            raise UsageError(
                f"The model's chat template refuses the messages: {reason}.",
                "Change the messages, or the order of their roles.",
            ) from error
        except limits.LimitReached as error:
            raise ModelError(f"{self._name} was stopped: {error.message}.") from error
        # Anything may go wrong in a stranger's program, and all of it is the model's fault.
        except Exception as error:
            raise ModelError(f"{self._name} failed: {_reason(error)}.") from error
        finally:
            limits.reset_current(token)
        return "".join(parts)


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    if isinstance(error, MemoryError):
        return "it is too large"
    text = one_line(str(error)).rstrip(".") or "no reason given"
    return text if isinstance(error, TemplateError) else f"{type(error).__name__}, {text}"


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, set up as chat templates expect it (white space, loop controls, functions)."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        # Without the optimiser nothing is computed before a budget is in place.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=[_Generation, loopcontrols],
        )
        filters.install(self)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Plain values show only the methods listed above."""
        if not super().is_safe_attribute(obj, attr, value):
            return False
        for kind, methods in _METHODS:
            if isinstance(obj, kind):
                return attr in methods
        return True

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A shorter way to what a namespace holds."""
        if type(obj) is filters.TemplateNamespace:
            values = filters.TemplateNamespace.read(obj)
            if attribute in values:
                return values[attribute]
            return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Any:
        """str.format can pad without bound, and the format filter does its work."""
        if super().wrap_str_format(value) is not None:
            raise SecurityError("str.format is not offered to chat templates")
        return None

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls that can make long texts go through functions that measure first."""
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            # Jinja adds the loop's variables for functions that take the context.
            own = {key: value for key, value in kwargs.items() if key not in _ADDED_BY_JINJA}
            name = getattr(__obj, "__name__", "")
            if name == "join":
                return filters.join_text(*args, **{**own, "between": owner})
            if name == "replace":
                return filters.replaced(owner, *args, **own)
        return filters.checked(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators that can make long texts, lists or numbers are measured first."""
        check = _OPERATOR_CHECKS.get(operator)
        if check is not None:
            return check(left, right)
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """{% generation %} marks an assistant's text for training; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012 (an instance variable in the base class)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _add(left: Any, right: Any) -> Any:
    budget = limits.current()
    if isinstance(left, str) and isinstance(right, str):
        budget.spend(len(left) + len(right))
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        budget.items(len(left) + len(right))
    return left + right


def _multiply(left: Any, right: Any) -> Any:
    budget = limits.current()
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(many, (str, bytes)):
            budget.spend(len(many) * max(0, times))
        elif isinstance(times, int) and isinstance(many, (list, tuple)):
            budget.items(len(many) * max(0, times))
            budget.measure([budget.measure(many) * max(0, times)])
    if isinstance(left, int) and isinstance(right, int):
        limits.check_integer(left)
        limits.check_integer(right)
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        limits.check_integer(left)
        if abs(left) > 1 and right * left.bit_length() > limits.MAX_INTEGER_BITS:
            raise limits.LimitReached("it computes with numbers of more than a thousand digits")
    return operator.pow(left, right)


def _modulo(left: Any, right: Any) -> Any:
    return filters.formatted(left, right) if isinstance(left, str) else left % right


_OPERATOR_CHECKS = {"+": _add, "*": _multiply, "**": _power, "%": _modulo}
