"""Checks messages and tool declarations and brings them into the one form templates expect.

Everything is copied into plain JSON values, so a template never holds an object of the caller's.
Rendering is left to chat.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlx_diffusiongemma.errors import UsageError
from mlx_diffusiongemma.text.channels import strip_thinking
from mlx_diffusiongemma.text.tokenizer import has_surrogate

# "model" is Gemma's own word for the role templates call "assistant".
ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
}
_MEDIA = ("image", "audio", "video")
_MAX_DEPTH = 64


def prepare_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Checked copies of messages: dicts with "role", "content" and what else the caller gave.

    Roles are system, developer, user, assistant (or model) and tool. Content is text or a list of
    {"type": "text", "text": ...}; a tool's result may also be a mapping (it is written as JSON),
    and an assistant message may have none. The thinking in an assistant's content is taken out: it
    must not go back to the model. Raises UsageError that names the message.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise UsageError("Messages must be a list of mappings with a role and content.")
    if not messages:
        raise UsageError("There are no messages to answer.", "Send at least one message.")
    return [_message(message, number) for number, message in enumerate(messages, start=1)]


def prepare_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Checked copies of tool declarations: {"type": "function", "function": {...}}.

    A bare function object is wrapped. Raises UsageError that names the tool.
    """
    if tools is None:
        return None
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise UsageError("Tools must be a list of function declarations.")
    prepared = []
    for number, tool in enumerate(tools, start=1):
        where = f"Tool {number}"
        if not isinstance(tool, Mapping):
            raise UsageError(f"{where} is a {type(tool).__name__}, not a function declaration.")
        declaration = _plain(tool, where)
        if "function" not in declaration and "name" in declaration:
            declaration = {"type": "function", "function": declaration}
        function = declaration.get("function")
        if not isinstance(function, dict) or not _is_name(function.get("name")):
            raise UsageError(f"{where} has no function with a name.")
        prepared.append(declaration)
    return prepared


def _message(message: Mapping[str, Any], number: int) -> dict[str, Any]:
    where = f"Message {number}"
    if not isinstance(message, Mapping):
        raise UsageError(f"{where} is a {type(message).__name__}, not a mapping.")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise UsageError(
            f"{where} has the unknown role {str(role)[:40]!r}.",
            f"Known roles: {', '.join(ROLES)}.",
        )
    where = f"{where} ({role})"
    role = ROLES[role]
    # Interfaces write "tool_calls": null and the like, and templates stumble over it.
    rest = {key: value for key, value in message.items() if value is not None}
    content = rest.pop("content", None)
    prepared: dict[str, Any] = _plain({**rest, "role": role}, where)
    if "tool_calls" in prepared:
        prepared["tool_calls"] = _tool_calls(prepared["tool_calls"], where)
        if not prepared["tool_calls"]:
            del prepared["tool_calls"]
    prepared["content"] = _content(content, role, where)
    return prepared


def _content(content: Any, role: str, where: str) -> Any:
    if content is None:
        if role == "assistant":
            return ""
        raise UsageError(f"{where} has no content.")
    if isinstance(content, str):
        text = _text(content, where)
        return strip_thinking(text) if role == "assistant" else text
    if isinstance(content, Mapping):
        if role == "tool":
            return json.dumps(_plain(content, where), ensure_ascii=False)
        raise UsageError(f"{where} has a mapping as content, not text.")
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise UsageError(f"{where} has a {type(content).__name__} as content, not text.")
    parts = [_part(part, where) for part in content]
    if role == "assistant":
        for part in parts:
            part["text"] = strip_thinking(part["text"])
    return parts


def _part(part: Any, where: str) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        raise UsageError(f"{where} holds a {type(part).__name__} where a content part is expected.")
    kind = part.get("type")
    if isinstance(kind, str):
        for medium in _MEDIA:
            if medium in kind:
                raise UsageError(
                    f"{where} holds {'an' if medium[0] in 'ai' else 'a'} {medium}, "
                    "and this version reads text only.",
                    f"Leave the {medium} out.",
                )
    if kind != "text" or not isinstance(part.get("text"), str):
        raise UsageError(
            f"{where} holds a content part that is not text.",
            'Parts have the form {"type": "text", "text": "..."}.',
        )
    prepared: dict[str, Any] = _plain(part, where)
    return prepared


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise UsageError(f"{where} has tool_calls that are not a list.")
    prepared = []
    for call in calls:
        if isinstance(call, dict) and "function" not in call and "name" in call:
            call = {"type": "function", "function": call}
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not _is_name(function.get("name")):
            raise UsageError(f"{where} has a tool call without a function name.")
        arguments = function.get("arguments")
        if arguments is None:
            arguments = {}
        if isinstance(arguments, str):
            arguments = _plain(_json_object(arguments), where)
        if not isinstance(arguments, (dict, str)):
            raise UsageError(f"{where} has a tool call whose arguments are not a mapping.")
        prepared.append({**call, "function": {**function, "arguments": arguments}})
    return prepared


def _json_object(text: str) -> Any:
    """Arguments arrive as JSON text from some interfaces; other text is left for the template."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """A copy of a value made of plain JSON types alone."""
    if depth > _MAX_DEPTH:
        raise UsageError(f"{where} is nested too deeply.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise UsageError(f"{where} holds a mapping with a key that is not text.")
            copy[_text(key, where)] = _plain(item, where, depth + 1)
        return copy
    if isinstance(value, (list, tuple)):
        return [_plain(item, where, depth + 1) for item in value]
    raise UsageError(
        f"{where} holds a {type(value).__name__}, and only text, numbers, lists and mappings fit.",
    )


def _text(value: str, where: str) -> str:
    if has_surrogate(value):
        raise UsageError(
            f"{where} is not valid Unicode: it holds a lone surrogate.",
            "Check that the input is UTF-8 text.",
        )
    return str.__str__(value)
