"""The slash commands of chat: a table of names, what they do, and the parsing of /set."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches

from mlx_diffusiongemma.cli import options
from mlx_diffusiongemma.cli.conversation import Conversation
from mlx_diffusiongemma.cli.report import statistics
from mlx_diffusiongemma.errors import UsageError

_COMMAND = re.compile(r"/([A-Za-z?]+)(?:\s+(.*))?", re.DOTALL)
_SWITCH = {"on": True, "off": False}

HELP = '''\
/help             this list
/clear            forget the conversation; system prompt and settings stay
/retry            answer the latest question again, with the next seed
/undo             forget the latest question and its answer
/system [TEXT]    show the system prompt or set it; /system - removes it
/set NAME VALUE   change a setting (default: the checkpoint's); /set lists them
/show             model, settings and length of the conversation
/stats            tokens, steps and times of the latest answer
/bye              leave (also Ctrl-D)
"""               begins and ends a message of several lines
Ctrl-C            stop the answer, keeping what is final'''


class Leave(Exception):
    """The user wants to go."""


def parse_command(text: str) -> tuple[str, str] | None:
    """Name and rest of a slash command; None for a message, such as one about /etc/passwd."""
    match = _COMMAND.fullmatch(text.strip())
    return (match[1].lower(), (match[2] or "").strip()) if match else None


def run_command(name: str, rest: str, chat: Conversation) -> None:
    """Runs a command; everything it says goes to stderr. Leave ends the chat."""
    command = COMMANDS.get(name)
    chat.code = 0
    if command is None:
        chat.code = UsageError.exit_code
        close = get_close_matches(name, COMMANDS, 1)
        guess = f"did you mean /{close[0]}?" if close else "/help lists them."
        chat.notes.write(f"There is no command /{name}; {guess}\n")
        return
    command(rest, chat)


def _help(rest: str, chat: Conversation) -> None:
    chat.notes.write(HELP + "\n")


def _clear(rest: str, chat: Conversation) -> None:
    chat.messages.clear()
    chat.notes.line("The conversation is forgotten.")


def _retry(rest: str, chat: Conversation) -> None:
    if not chat.retry():
        chat.notes.write("There is no question to ask again.\n")


def _undo(rest: str, chat: Conversation) -> None:
    if chat.undo() is None:
        chat.notes.write("There is nothing to undo.\n")
    else:
        chat.notes.line("The latest question and its answer are forgotten.")


def _system(rest: str, chat: Conversation) -> None:
    if rest:
        chat.system = None if rest == "-" else rest
    chat.notes.write(f"system prompt: {chat.system or 'none'}\n")


def _stats(rest: str, chat: Conversation) -> None:
    if chat.last is None:
        chat.notes.write("There is no answer yet.\n")
    else:
        chat.notes.write(statistics(chat.last) + "\n")


def _bye(rest: str, chat: Conversation) -> None:
    raise Leave


def _show(rest: str, chat: Conversation) -> None:
    lines = [f"model: {chat.opened.name}", f"system prompt: {chat.system or 'none'}"]
    lines += _settings(chat)
    lines.append(f"conversation: {len(chat.messages) // 2} question(s) answered")
    chat.notes.write("\n".join(lines) + "\n")


def _settings(chat: Conversation) -> list[str]:
    lines = []
    for name, (field, _) in SETTINGS.items():
        source = chat if field in _ON_CHAT else chat.sampling
        value = getattr(source, field)
        if isinstance(value, bool):
            value = "on" if value else "off"
        lines.append(f"{name}: {'default' if value is None else value}")
    return lines


def _set(rest: str, chat: Conversation) -> None:
    name, _, value = rest.partition(" ")
    name, value = name.removeprefix("--"), value.strip()
    if not name:
        chat.notes.write("\n".join(_settings(chat)) + "\n")
        return
    try:
        if name not in SETTINGS:
            close = get_close_matches(name, SETTINGS, 1)
            guess = f"did you mean {close[0]}?" if close else f"there are {', '.join(SETTINGS)}."
            raise UsageError(f"There is no setting {name}; {guess}")
        if not value:
            raise UsageError(f"/set {name} needs a value, or default.")
        field, parse = SETTINGS[name]
        _assign(chat, name, field, parse, value)
    except UsageError as error:
        chat.code = error.exit_code
        chat.notes.write(error.message.replace("--", "") + "\n")


def _assign(
    chat: Conversation, name: str, field: str, parse: Callable[[str], object], value: str
) -> None:
    if value == "default":
        parsed = _DEFAULTS.get(field)
    else:
        try:
            parsed = parse(value)
        except (ValueError, KeyError):
            raise UsageError(f"{value!r} is not a value for {name}.") from None
    if field in _ON_CHAT:
        if field == "view":
            options.check_view(str(parsed))
        setattr(chat, field, parsed)
    else:
        chat.change(**{field: parsed})


_ON_CHAT = ("view", "show_thinking", "show_stats")
_DEFAULTS = {
    "temperature": 1.0,
    "sampler": "entropy-bound",
    "view": "auto",
    "show_thinking": False,
    "show_stats": False,
}

SETTINGS: dict[str, tuple[str, Callable[[str], object]]] = {
    "max-tokens": ("max_tokens", int),
    "temp": ("temperature", float),
    "seed": ("seed", int),
    "steps": ("steps", int),
    "sampler": ("sampler", str),
    "entropy-bound": ("entropy_bound", float),
    "t-min": ("t_min", float),
    "t-max": ("t_max", float),
    "stability": ("stability", int),
    "confidence": ("confidence", float),
    "thinking": ("thinking", _SWITCH.__getitem__),
    "show-thinking": ("show_thinking", _SWITCH.__getitem__),
    "stats": ("show_stats", _SWITCH.__getitem__),
    "view": ("view", str),
}

COMMANDS: dict[str, Callable[[str, Conversation], None]] = {
    "help": _help,
    "clear": _clear,
    "retry": _retry,
    "undo": _undo,
    "system": _system,
    "set": _set,
    "show": _show,
    "stats": _stats,
    "bye": _bye,
    "exit": _bye,
    "quit": _bye,
}
