"""Small tokenizers and templates the text tests build for themselves."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from mlx_diffusiongemma.text.chat import ChatTemplate
from mlx_diffusiongemma.text.tokenizer import Tokenizer, load_tokenizer

# Gemma's special tokens at their real ids; <|video|> stands at the end, with a gap before it.
SPECIAL = {
    0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>",
    46: "<|tool>", 47: "<tool|>", 48: "<|tool_call>", 49: "<tool_call|>",
    50: "<|tool_response>", 51: "<tool_response|>", 52: '<|"|>', 98: "<|think|>",
    100: "<|channel>", 101: "<channel|>", 105: "<|turn>", 106: "<turn|>",
}  # fmt: skip
MEDIA = ("<|image>", "<|image|>", "<image|>")
WORDS = (
    *("thought", "the", "turn", "user", "model", "system", "hello", "world", "final", "call"),
    *("answer", "weather", "city"),
)
BYTE_0 = 108
CONFIG: dict[str, Any] = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": {"content": "<pad>"},
    "unk_token": "<unk>",
    "sot_token": "<|turn>",
    "extra_special_tokens": ["<|video|>"],
    "clean_up_tokenization_spaces": False,
}

# A template in the released one's manner: own words, same marks.
TEMPLATE = """{%- macro without_thoughts(text) -%}
    {%- set ns = namespace(out='') -%}
    {%- for part in text.split('<channel|>') -%}
        {%- set ns.out = ns.out + part.split('<|channel>')[0] -%}
    {%- endfor -%}
    {{- ns.out | trim -}}
{%- endmacro -%}
{%- macro value_of(value) -%}
    {%- if value is string -%}{{ '<|"|>' + value + '<|"|>' }}
    {%- elif value is boolean -%}{{ 'true' if value else 'false' }}
    {%- elif value is mapping -%}{
        {%- for key, item in value | dictsort -%}
            {{ key }}:{{ value_of(item) }}{{ ',' if not loop.last }}
        {%- endfor -%}}
    {%- elif value is iterable -%}[
        {%- for item in value -%}{{ value_of(item) }}{{ ',' if not loop.last }}{%- endfor -%}]
    {%- else -%}{{ value }}{%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- set rest = messages -%}
{%- set leads = messages[0]['role'] in ['system', 'developer'] -%}
{%- if tools or leads or (enable_thinking is defined and enable_thinking) -%}
    {{- '<|turn>system\\n' -}}
    {%- if enable_thinking is defined and enable_thinking -%}{{- '<|think|>\\n' -}}{%- endif -%}
    {%- if leads -%}
        {{- messages[0]['content'] | trim -}}{%- set rest = messages[1:] -%}
    {%- endif -%}
    {%- for tool in tools or [] -%}
        {{- '<|tool>declaration:' + tool['function']['name'] -}}
        {{- value_of(tool['function'].get('parameters', {})) + '<tool|>' -}}
    {%- endfor -%}
    {{- '<turn|>\\n' -}}
{%- endif -%}
{%- for message in rest -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{- '<|turn>' + role + '\\n' -}}
    {%- for call in message['tool_calls'] or [] -%}
        {{- '<|tool_call>call:' + call['function']['name'] -}}
        {{- value_of(call['function']['arguments']) + '<tool_call|>' -}}
    {%- endfor -%}
    {%- if message['content'] is string -%}
        {{- without_thoughts(message['content']) if role == 'model'
            else message['content'] | trim -}}
    {%- else -%}
        {%- for part in message['content'] -%}{{- part['text'] | trim -}}{%- endfor -%}
    {%- endif -%}
    {{- '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|turn>model\\n' -}}
    {%- if not enable_thinking | default(false) -%}
        {{- '<|channel>thought\\n<channel|>' -}}
    {%- endif -%}
{%- endif -%}
"""


def library_tokenizer(*, starts_with_space: bool = False) -> Library:
    """BPE with byte fallback and ▁ for spaces, as Gemma's, over a few words."""
    names = {token: f"<unused{token}>" for token in range(107)} | SPECIAL | {107: "\n"}
    vocab = {text: token for token, text in sorted(names.items())}
    for octet in range(256):
        vocab[f"<0x{octet:02X}>"] = BYTE_0 + octet
    for character in [*map(chr, range(33, 127)), "▁", "é", "日"]:
        vocab[character] = len(vocab)
    merges = []
    for word in WORDS:
        for spelled in (word, "▁" + word):
            for end in range(2, len(spelled) + 1):
                if spelled[:end] not in vocab:
                    vocab[spelled[:end]] = len(vocab)
                    merges.append((spelled[: end - 1], spelled[end - 1]))
    for text in MEDIA:
        vocab[text] = len(vocab)
    library = Library(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if starts_with_space:
        library.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        steps.append(decoders.Strip(" ", 1, 0))
    library.decoder = decoders.Sequence(steps)
    marks = [*SPECIAL.values(), *MEDIA]
    library.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in marks])
    library.add_tokens([AddedToken("\n", special=False, normalized=False)])
    library.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", 2)]
    )
    return library


def write_library_folder(folder: Path, *, starts_with_space: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    library_tokenizer(starts_with_space=starts_with_space).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def write_piece_folder(folder: Path, *, like_gemma: bool = True) -> Path:
    """A SentencePiece model trained on a few sentences; Gemma's settings or the library's own."""
    import sentencepiece

    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "sentences.txt"
    text.write_text("\n".join([" ".join(WORDS), "the user says hello to the model"] * 30))
    options: dict[str, Any] = {}
    if like_gemma:
        options = {
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "normalization_rule_name": "identity",
            "control_symbols": ["<|channel>", "<channel|>"],
            "user_defined_symbols": [
                *("<mask>", "<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
                *("<|think|>", "<|tool>", "<tool|>", "\n", "<table>", "<unused7>"),
            ],
        }
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        vocab_size=400,
        hard_vocab_limit=False,
        byte_fallback=True,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        unk_piece="<unk>",
        minloglevel=2,
        num_threads=1,
        **options,
    )
    text.unlink()
    (folder / "tokenizer.vocab").unlink()
    return folder


KINDS = ("library", "library with space", "pieces", "pieces with space")


@cache
def tokenizer(kind: str) -> Tokenizer:
    """One of the small tokenizers, by kind."""
    folder = Path(tempfile.mkdtemp(prefix="small-tokenizer-"))
    try:
        spaced = kind.endswith("with space")
        if kind.startswith("library"):
            write_library_folder(folder, starts_with_space=spaced)
        else:
            write_piece_folder(folder, like_gemma=not spaced)
        return load_tokenizer(folder)
    finally:
        shutil.rmtree(folder)


@cache
def template() -> ChatTemplate:
    return ChatTemplate(TEMPLATE, {"bos_token": "<bos>"})


def vocabulary(kind: str) -> list[int]:
    """Every id, and a few that no token has."""
    size = tokenizer(kind).vocab_size
    return [*range(size), size, size + 7]
