"""The same prompts and ids as transformers, where it has no better rule of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mlx_diffusiongemma.text.chat import ChatTemplate, encode_chat
from tests.unit.text import small
from tests.unit.text.test_chat import CONVERSATIONS, TOOLS

pytestmark = pytest.mark.reference


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = small.write_library_folder(tmp_path_factory.mktemp("tokenizer"))
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        chat_template=small.TEMPLATE,
    )


@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_prompts(reference: Any, name: str, tools: Any, thinking: bool | None) -> None:
    messages = [{"content": "", **message} for message in CONVERSATIONS[name]]
    switch = {} if thinking is None else {"enable_thinking": thinking}
    for wanted in (True, False):
        options: dict[str, Any] = {"tools": tools, "add_generation_prompt": wanted}
        text = reference.apply_chat_template(messages, tokenize=False, **options, **switch)
        ids = reference.apply_chat_template(
            messages, tokenize=True, return_dict=False, **options, **switch
        )
        assert small.template().render(messages, thinking=thinking, **options) == text
        assert ids == encode_chat(
            small.template(), small.tokenizer("library"), messages, thinking=thinking, **options
        )


VALUES = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(-9, 9), st.booleans(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=VALUES, indent=st.sampled_from([None, 0, 2]), sort_keys=st.booleans())
@settings(max_examples=60)
def test_tojson(reference: Any, value: Any, indent: int | None, sort_keys: bool) -> None:
    source = (
        f"{{{{ messages[0].extra | tojson(indent={indent}, sort_keys={sort_keys}) }}}}".replace(
            "None", "none"
        )
    )
    messages = [{"role": "user", "content": "x", "extra": {"v": value}}]
    assert ChatTemplate(source).render(messages) == reference.apply_chat_template(
        messages, chat_template=source, tokenize=False
    )


@given(
    ids=st.lists(
        st.sampled_from(
            [i for i in small.vocabulary("library") if i < small.tokenizer("library").vocab_size]
        ),
        max_size=30,
    ),
    skip=st.booleans(),
)
def test_decoding(reference: Any, ids: list[int], skip: bool) -> None:
    assert small.tokenizer("library").decode(ids, skip_special_tokens=skip) == reference.decode(
        ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
    )
