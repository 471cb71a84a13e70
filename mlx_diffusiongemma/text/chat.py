"""Chat prompts: finds a model folder's chat template, renders messages with it, encodes the result.

Messages are checked in messages.py, the template runs in sandbox.py. What is special here is that a
caller's text cannot become a special token: see `encode_chat`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from mlx_diffusiongemma.errors import ModelError
from mlx_diffusiongemma.text import limits
from mlx_diffusiongemma.text.files import GET_AGAIN, is_there, read_json_object, read_text
from mlx_diffusiongemma.text.messages import prepare_messages, prepare_tools
from mlx_diffusiongemma.text.sandbox import CompiledTemplate
from mlx_diffusiongemma.text.standins import StandIns
from mlx_diffusiongemma.text.tokenizer import Tokenizer, has_surrogate
from mlx_diffusiongemma.text.tokenizer_config import FILE_NAME, read_tokenizer_config

TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"
_DEFAULT = "default"
_WITH_TOOLS = "tool_use"


def load_template(folder: Path) -> ChatTemplate | None:
    """The chat template of a model folder, or None when it has none.

    It is looked for in chat_template.jinja, then chat_template.json, then tokenizer_config.json.
    ModelError when it is damaged or too large.
    """
    folder = Path(folder)
    config = read_tokenizer_config(folder)
    found: Any
    if is_there(path := folder / TEMPLATE_FILE):
        found, name = read_text(path, 4 * limits.MAX_SOURCE), TEMPLATE_FILE
    elif is_there(path := folder / TEMPLATE_JSON):
        found, name = read_json_object(path).get("chat_template"), TEMPLATE_JSON
        if found is None:
            raise ModelError(f'{TEMPLATE_JSON} has no "chat_template".', GET_AGAIN)
    elif config.chat_template is not None:
        found, name = config.chat_template, FILE_NAME
    else:
        return None
    return ChatTemplate(_named_sources(found, name), config.named, name)


class ChatTemplate:
    """A model's chat template, perhaps in several versions of which one is for tools."""

    def __init__(
        self,
        sources: str | Mapping[str, str],
        tokens: Mapping[str, str] | None = None,
        name: str = TEMPLATE_FILE,
    ) -> None:
        """Compile a template's text, or texts by name; `tokens` are variables such as bos_token."""
        if isinstance(sources, str):
            sources = {_DEFAULT: sources}
        self.sources = dict(sources)
        self._tokens = dict(tokens or {})
        where = f"The chat template in {name}"
        self._compiled = {
            key: CompiledTemplate(source, where if len(sources) == 1 else f"{where} ({key})")
            for key, source in self.sources.items()
        }

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt as text, special tokens written out.

        thinking None leaves the template its own default. UsageError for messages that are not
        valid or that the template refuses, ModelError when the template fails.
        """
        request = _Request(
            prepare_messages(messages), prepare_tools(tools), thinking, add_generation_prompt
        )
        return self._render(request)

    def _render(self, request: _Request) -> str:
        compiled = self._compiled.get(_WITH_TOOLS) if request.tools else None
        if compiled is None:
            compiled = self._compiled.get(_DEFAULT) or next(iter(self._compiled.values()))
        variables: dict[str, Any] = {
            **self._tokens,
            "messages": request.messages,
            "tools": request.tools,
            "documents": None,
            "add_generation_prompt": request.add_generation_prompt,
        }
        if request.thinking is not None:
            variables["enable_thinking"] = request.thinking
        return compiled.render(variables, request.budget())


class _Request:
    """What is to be rendered, in the caller's characters or with stand-ins for some of them."""

    def __init__(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        thinking: bool | None,
        add_generation_prompt: bool,
        stand_ins: StandIns | None = None,
        now: datetime | None = None,
    ) -> None:
        self.messages = messages
        self.tools = tools
        self.thinking = thinking
        self.add_generation_prompt = add_generation_prompt
        self._stand_ins = stand_ins
        # All renderings of one request see the same time.
        self._now = now or datetime.now()

    def budget(self) -> limits.Budget:
        text = limits.total_text([self.messages, self.tools])
        return limits.Budget.for_input(text, len(self.messages), self._stand_ins, self._now)

    def hidden(self, stand_ins: StandIns, *, all_of_it: bool) -> _Request:
        hide = stand_ins.hide_all if all_of_it else stand_ins.hide_tokens
        return _Request(
            hide(self.messages),
            hide(self.tools),
            self.thinking,
            self.add_generation_prompt,
            stand_ins,
            self._now,
        )

    def differs(self, other: _Request) -> bool:
        return self.messages != other.messages or self.tools != other.tools


def encode_chat(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: bool | None = None,
    add_generation_prompt: bool = True,
) -> list[int]:
    """Token ids of a prompt, in which no text of the caller's is ever a special token.

    The ids are those of `tokenizer.encode(template.render(...))`, except that special tokens
    written in messages or tools ("<turn|>") are encoded as the characters they are made of. This
    holds for every role: an assistant's text may repeat what a user made it say. Its thought
    channels are taken out before the template sees it, and its tool calls belong in "tool_calls".

    Special tokens are told apart by their punctuation: the template is rendered a second time with
    stand-ins for the caller's own. Even parts that only together make up a token are seen that way.
    Should the template act on punctuation in the messages, so that the two renderings differ, it
    is rendered a third time with stand-ins only where whole tokens are written; that one counts if
    it holds the same special tokens as the safe one.
    """
    plain = _Request(
        prepare_messages(messages), prepare_tools(tools), thinking, add_generation_prompt
    )
    prompt = _checked(template._render(plain))
    stand_ins = StandIns(tokenizer.special_tokens)
    safe = plain.hidden(stand_ins, all_of_it=True)
    if not safe.differs(plain):
        return tokenizer.encode(prompt)
    rendered = template._render(safe)
    if stand_ins.show(rendered)[0] != prompt:
        closer = template._render(plain.hidden(stand_ins, all_of_it=False))
        if stand_ins.pattern.findall(closer) == stand_ins.pattern.findall(rendered):
            rendered = closer
    return _encode_rendered(tokenizer, stand_ins, rendered)


def _encode_rendered(tokenizer: Tokenizer, stand_ins: StandIns, rendered: str) -> list[int]:
    """Ids of a prompt with stand-ins: special tokens without one are the template's own."""
    text, foreign = stand_ins.show(rendered)
    ids = tokenizer.encode_marked(_checked(text), foreign)
    known = tokenizer.special_tokens
    wanted = [known[mark] for mark in stand_ins.pattern.findall(rendered)]
    if [token for token in ids if token in tokenizer.control_ids] == [
        token for token in wanted if token in tokenizer.control_ids
    ]:
        return ids
    # The caller's characters and a token of the template's overlap, or the tokenizer finds tokens
    # by other rules: keep the template's tokens and encode what is between them by itself.
    ids = []
    start = 0
    for match in stand_ins.pattern.finditer(rendered):
        ids.extend(tokenizer.encode_plain(text[start : match.start()]))
        ids.append(known[match.group()])
        start = match.end()
    return [*ids, *tokenizer.encode_plain(text[start:])]


def _checked(prompt: str) -> str:
    if has_surrogate(prompt):
        raise ModelError("The chat template writes text that is not valid Unicode.")
    return prompt


def _named_sources(found: Any, name: str) -> dict[str, str]:
    """Templates by name, from a string or from a list of {"name": ..., "template": ...}."""
    if isinstance(found, str):
        return {_DEFAULT: found}
    sources: dict[str, str] = {}
    for item in found if isinstance(found, list) else []:
        key = item.get("name") if isinstance(item, Mapping) else None
        source = item.get("template") if isinstance(item, Mapping) else None
        if not isinstance(key, str) or not isinstance(source, str):
            raise ModelError(f"{name} has a damaged entry in its list of chat templates.")
        sources[key] = source
    if not sources:
        raise ModelError(f"The chat_template in {name} is neither text nor a list of templates.")
    return sources
