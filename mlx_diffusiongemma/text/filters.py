"""The filters and functions a chat template may use, each bounded by the rendering's budget.

Names are those of Jinja; filters no chat template needs and that only make work are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from itertools import islice
from typing import Any

from jinja2 import Environment, pass_context, pass_environment
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Context
from jinja2.utils import Namespace

from mlx_diffusiongemma.text import limits, rewrite

# As Jinja has them. The first group writes its input out as text, whatever it is.
_TEXT_FILTERS = (
    *("capitalize", "e", "escape", "lower", "safe", "striptags", "title", "trim", "truncate"),
    *("upper", "urlencode", "wordcount"),
)
_OTHER_FILTERS = (
    *("abs", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items"),
    *("last", "length", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select"),
    *("selectattr", "sort", "unique"),
)
# "%d", "%-5.2f", "%(name)s"; the width and precision are what can be abused.
_FORMAT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d*)(?:\.(\*|\d*))?")
_CLOCK_WIDTH = re.compile(r"%[-_0^#:+]*\d")


class TemplateRefusal(TemplateError):
    """The template called raise_exception: it does not want these messages."""


def checked(result: Any) -> Any:
    """A filter's or method's result, after counting what it made."""
    if isinstance(result, str):
        limits.current().spend(len(result))
    elif isinstance(result, (list, tuple, dict)):
        limits.current().items(len(result))
    return result


def as_text(value: Any) -> str:
    """The text of a value, after measuring it."""
    if type(value) is str:
        return value
    limits.current().measure(value)
    return str(value)


def join_text(parts: Iterable[Any], between: str = "") -> str:
    """Texts of values joined, after measuring the whole."""
    budget = limits.current()
    listed = list(islice(parts, limits.MAX_ITEMS + 1))
    budget.items(len(listed))
    size = len(between) * max(0, len(listed) - 1)
    texts = []
    for part in listed:
        texts.append(as_text(part))
        size += len(texts[-1])
        if size > budget.max_text:
            break
    budget.spend(size)
    return between.join(texts)


def replaced(text: str, old: str, new: str, count: int | None = None) -> str:
    """str.replace, after working out how long the result is."""
    places = text.count(old)
    if count is not None and count >= 0:
        places = min(places, count)
    limits.current().spend(len(text) + max(0, places * (len(new) - len(old))))
    return text.replace(old, new, -1 if count is None else count)


def formatted(template: str, values: Any) -> str:
    """The % operator, after looking at widths and sizes."""
    budget = limits.current()
    for match in _FORMAT.finditer(template):
        for width in match.groups():
            if width == "*" or (width and (len(width) > 4 or int(width) > limits.MAX_PADDING)):
                raise limits.LimitReached("it pads text by an unreasonable width")
    if isinstance(values, Mapping):
        parts = list(values.values())
    else:
        parts = list(values) if isinstance(values, tuple) else [values]
    longest = max((budget.measure(part) for part in parts), default=0)
    # %r and %a write up to ten characters for one.
    budget.spend(len(template) + template.count("%") * (10 * longest + limits.MAX_PADDING))
    return str(template % values)


def install(environment: Environment) -> None:
    """Give an environment these filters and functions, and no others."""
    environment.filters.clear()
    for name in _TEXT_FILTERS:
        environment.filters[name] = _bounded(FILTERS[name], writes_text=True)
    for name in _OTHER_FILTERS:
        environment.filters[name] = _bounded(FILTERS[name], writes_text=False)
    environment.filters.update(
        {
            "batch": _batch,
            "format": _format,
            "indent": _indent,
            "join": _join,
            "replace": lambda value, old, new, count=None: replaced(
                as_text(value), as_text(old), as_text(new), count
            ),
            "round": _round,
            "slice": _slice,
            "string": lambda value: checked(as_text(value)),
            "sum": _sum,
            "tojson": _tojson,
            rewrite.BUILD: _build,
            rewrite.EMIT: _emit,
            rewrite.JOIN: lambda parts: join_text(parts),
            rewrite.ROUND: _go_round,
        }
    )
    environment.globals.pop("lipsum", None)
    environment.globals.update(
        {
            "dict": _dict,
            "namespace": TemplateNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
    )


class TemplateNamespace(Namespace):
    """Jinja's namespace, without names that reach into Python and without a text of its own.

    Templates read these in their innermost loops: `read` spares them the sandbox's questions.
    """

    def __init__(*args: Any, **kwargs: Any) -> None:
        # `self` is taken from args, so that a template may use the name as a keyword.
        values = dict(*args[1:], **kwargs)
        for name in values:
            _public(name)
        object.__setattr__(args[0], "_values", values)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return object.__getattribute__(self, name)
        try:
            return TemplateNamespace.read(self)[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        _public(name)
        TemplateNamespace.read(self)[name] = value

    def __repr__(self) -> str:
        return "<namespace>"

    @staticmethod
    def read(namespace: TemplateNamespace) -> dict[str, Any]:
        """What a namespace holds."""
        values: dict[str, Any] = object.__getattribute__(namespace, "_values")
        return values


def _public(name: Any) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"the name {str(name)[:40]!r} is not open to templates")


def _bounded(function: Callable[..., Any], *, writes_text: bool) -> Callable[..., Any]:
    """A filter of Jinja's that counts what it makes; its mark for the context is kept."""
    takes_context = getattr(function, "jinja_pass_arg", None) is not None

    def bounded(*args: Any, **kwargs: Any) -> Any:
        if writes_text:
            for value in args[1:] if takes_context else args:
                limits.current().measure(value)
        return checked(function(*args, **kwargs))

    return update_wrapper(bounded, function)


@pass_context
def _emit(_context: Context, value: Any) -> str:
    # A filter that takes the context is never computed while the template is compiled.
    text = as_text(value)
    limits.current().spend(len(text))
    return text


@pass_context
def _go_round(_context: Context, value: Any) -> Any:
    limits.current().round()
    return value


def _build(value: Any) -> Any:
    limits.current().measure(value)
    return value


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: str = "", attribute: Any = None
) -> str:
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    return join_text(value, as_text(d))


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TemplateError("format takes values or names, not both")
    return formatted(as_text(value), kwargs or args)


def _indent(value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    limits.check_padding(width)
    text = as_text(value)
    fill = width if isinstance(width, str) else " " * width
    limits.current().spend(len(text) + len(fill) * (text.count("\n") + 1))
    return str(FILTERS["indent"](text, width, first, blank))


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
    limits.check_padding(linecount)
    return FILTERS["batch"](value, linecount, fill_with)


def _slice(value: Iterable[Any], slices: int, fill_with: Any = None) -> Any:
    limits.check_padding(slices)
    return FILTERS["slice"](value, slices, fill_with)


def _round(value: Any, precision: Any = 0, method: str = "common") -> Any:
    if not isinstance(precision, int) or abs(precision) > 30:
        raise TemplateError("round takes a precision of at most 30 digits")
    return FILTERS["round"](value, precision, method)


@pass_environment
def _sum(
    environment: Environment, iterable: Iterable[Any], attribute: Any = None, start: Any = 0
) -> Any:
    if attribute is not None:
        iterable = map(make_attrgetter(environment, attribute), iterable)
    numbers = [start, *iterable]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise TemplateError("sum adds up numbers only")
    return sum(numbers)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, as chat templates expect it."""
    budget = limits.current()
    limits.check_padding(indent)
    budget.measure(value)
    options = {
        "ensure_ascii": bool(ensure_ascii),
        "indent": indent,
        "separators": separators,
        "sort_keys": bool(sort_keys),
    }
    if budget.stand_ins is not None:
        return str(checked(budget.stand_ins.dump(value, **options)))
    return str(checked(json.dumps(value, **options)))


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    made = dict(*args, **kwargs)
    limits.current().measure(made)
    return made


def _raise_exception(message: Any) -> None:
    raise TemplateRefusal(as_text(message))


def _strftime_now(layout: Any) -> str:
    text = as_text(layout)
    if len(text) > 200 or _CLOCK_WIDTH.search(text):
        raise TemplateError("strftime_now takes a short layout without widths")
    return limits.current().now.strftime(text)
