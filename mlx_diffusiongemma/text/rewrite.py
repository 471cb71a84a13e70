"""Rewrites a parsed template so that its loops, texts and lists ask for allowance first.

Jinja's sandbox can refuse calls and operators; it cannot see loops going round, `~`, captured
blocks or list literals. Each of those is wrapped here in a filter that sandbox.py provides.
"""

from __future__ import annotations

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError

EMIT = "_emit"  # every text that is written
JOIN = "_join"  # a ~ b
BUILD = "_build"  # [a, b] and {a: b}
ROUND = "_round"  # a loop goes round

_STATEMENTS_PER_ROUND = 32


def rewrite(template: nodes.Template) -> nodes.Template:
    """The same template, guarded. The tree is changed in place."""
    _visit(template)
    return template


def _visit(node: nodes.Node) -> nodes.Node:
    for name, value in list(node.iter_fields()):
        if isinstance(value, list):
            changed = [_visit(item) if isinstance(item, nodes.Node) else item for item in value]
            setattr(node, name, _with_rounds(changed) if name in ("body", "else_") else changed)
        elif isinstance(value, nodes.Node):
            setattr(node, name, _visit(value))
    return _guarded(node)


def _guarded(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.CallBlock):
        raise TemplateSyntaxError("call blocks are not offered to chat templates", node.lineno)
    if isinstance(node, (nodes.For, nodes.Macro)):
        node.body.insert(0, _round(node.lineno))
    elif isinstance(node, nodes.Output):
        node.nodes = [_filter(EMIT, _text(child), child.lineno) for child in node.nodes]
    elif isinstance(node, (nodes.FilterBlock, nodes.AssignBlock)) and node.filter is not None:
        node.filter = _filter(EMIT, node.filter, node.lineno)
    elif isinstance(node, nodes.Concat):
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return _filter(JOIN, parts, node.lineno)
    elif _builds(node):
        return _filter(BUILD, node, node.lineno)
    return node


def _builds(node: nodes.Node) -> bool:
    """Whether a node makes a list or mapping out of values that are not constants."""
    if isinstance(node, nodes.Dict):
        return any(not isinstance(pair.value, nodes.Const) for pair in node.items)
    if isinstance(node, nodes.List) or (isinstance(node, nodes.Tuple) and node.ctx == "load"):
        return any(not isinstance(item, nodes.Const) for item in node.items)
    return False


def _with_rounds(statements: list[nodes.Node]) -> list[nodes.Node]:
    """A long stretch of statements looks at the clock now and then, even without a loop."""
    if len(statements) <= _STATEMENTS_PER_ROUND:
        return statements
    result: list[nodes.Node] = []
    for number, statement in enumerate(statements):
        if number % _STATEMENTS_PER_ROUND == 0:
            result.append(_round(statement.lineno))
        result.append(statement)
    return result


def _text(child: nodes.Node) -> nodes.Node:
    if isinstance(child, nodes.TemplateData):
        return nodes.Const(child.data, lineno=child.lineno)
    return child


def _round(lineno: int) -> nodes.Node:
    return nodes.ExprStmt(_filter(ROUND, nodes.Const(None, lineno=lineno), lineno), lineno=lineno)


def _filter(name: str, node: nodes.Node | None, lineno: int) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=lineno)
