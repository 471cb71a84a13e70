"""The ids that really reach the model, from every way a prompt can be given.

What went wrong elsewhere: the begin token and the system text once per turn, old thoughts sent
back, another thinking default than the template's, long input cut or changed on its way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma import runtime as runtime_module
from mlx_diffusiongemma.prompt import build_prompt
from mlx_diffusiongemma.text.chat import load_template
from mlx_diffusiongemma.text.tokenizer import load_tokenizer
from tests.reports.models import DEMO, run, write_model

CHEAP = ("--max-tokens", "3", "--steps", "1", "--seed", "1", "-q")
BEGIN, TURN = 2, 105


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("prompts") / "model", ends=[])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids of every prompt from here on."""
    prompts: list[list[int]] = []

    def record(*args: Any, **keywords: Any) -> Any:
        built = build_prompt(*args, **keywords)
        prompts.append(list(built.ids))
        return built

    monkeypatch.setattr(runtime_module, "build_prompt", record)
    return prompts


def rendered(messages: list[dict[str, str]], **options: Any) -> list[int]:
    """The template called once with the whole history, and its text encoded once."""
    template = load_template(DEMO)
    assert template is not None
    return load_tokenizer(DEMO).encode(template.render(messages, **options))


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize(
    ("flag", "thinking"), [((), None), (("--thinking",), True), (("--no-thinking",), False)]
)
def test_the_thinking_switch_is_the_templates_own(
    model: Path, seen: list[list[int]], command: str, flag: tuple[str, ...], thinking: bool | None
) -> None:
    assert run(command, "-m", model, *CHEAP, *flag, stdin="hello\n").code == 0
    assert seen == [rendered([{"role": "user", "content": "hello"}], thinking=thinking)]


def test_the_third_turn_is_the_whole_history_rendered_once(seen: list[list[int]]) -> None:
    """With the trained model, which thinks before both answers that are sent back."""
    asked = ["What is the capital of Italy?", "What is the capital of France?", "Bye!"]
    system = "Be brief."
    typed = "".join(f"{line}\n" for line in asked)
    ran = run(
        *("chat", "-m", "demo", "--seed", "1", "--thinking", "--show-thinking"),
        *("--system-prompt", system),
        stdin=typed,
    )
    assert ran.code == 0 and "[thinking]" in ran.err
    answers = ran.out.splitlines()
    messages = [{"role": "system", "content": system}]
    for number, ids in enumerate(seen):
        messages.append({"role": "user", "content": asked[number]})
        assert ids == rendered(messages, thinking=True)
        assert ids.count(BEGIN) == 1
        assert ids.count(TURN) == 2 * number + 3  # system, the turns so far, the open one
        messages.append({"role": "assistant", "content": answers[number]})
    assert len(seen) == 3
    sent = load_tokenizer(DEMO).decode(seen[2])
    assert all(sent.count(answer) == 1 for answer in answers[:2])
    thoughts = ran.err.split("[thinking]\n")[1:]
    assert all(part.split("\n[/thinking]")[0] not in sent for part in thoughts[:2])


@pytest.mark.parametrize("how", [(), ("-p", "-")])
def test_a_long_file_arrives_token_for_token(
    model: Path, seen: list[list[int]], how: tuple[str, ...]
) -> None:
    """More than an argument may hold; mark, CRLF and last newline as `generate --help` says."""
    line = '  The cat sat "here" \\n $HOME \u00e9\ud55c\U0001f468\u200d\U0001f469\n'
    text = line * (300_000 // len(line.encode()))
    data = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    ran = run("generate", "-m", model, *how, "--raw", *CHEAP, stdin=data)
    assert (ran.code, ran.out) == (2, "")  # too long for this model's context, said in one line
    assert ran.err.startswith("error: The prompt has ")
    assert seen == [load_tokenizer(DEMO).encode(text.removesuffix("\n"))]


def test_a_backslash_stays_a_backslash(model: Path, seen: list[list[int]]) -> None:
    """JSON and LaTeX depend on it."""
    text = r'{"a": "b\nc"} \nabla'
    assert run("generate", "-m", model, *CHEAP, "-p", text).code == 0
    assert seen == [rendered([{"role": "user", "content": text}])]
