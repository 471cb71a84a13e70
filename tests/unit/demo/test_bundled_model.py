"""The bundled demo model: its files, its sure answers before and after conversion, its repairs.

Only saturated tasks are asked for exact answers; the measured accuracy over held-out prompts comes
from `make accuracy`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import mlx_diffusiongemma.demo
from mlx_diffusiongemma import Prefix, Runtime, load
from mlx_diffusiongemma.convert import convert_checkpoint
from tests.demo_model.dialogue import WEATHER_TOOL
from tests.demo_model.tasks import story_is_right

DEMO = Path(mlx_diffusiongemma.demo.__file__).parent
SURE = {
    "What is the capital of France?": "The capital of France is Paris.",
    "What is the capital of Japan?": "The capital of Japan is Tokyo.",
    "Name the capital of Italy.": "The capital of Italy is Rome.",
    "Capital of Spain?": "The capital of Spain is Madrid.",
    "Hello!": "Hello! How can I help you?",
    "Thank you!": "You are welcome!",
    "Bye!": "Goodbye! Have a nice day.",
    "Repeat: cat moon lamp": "cat moon lamp",
    "Say: fox jar": "fox jar",
    "Reverse: cat dog": "dog cat",
    "Extract JSON: Ann is 31 years old and lives in Rome.": json.dumps(
        {"name": "Ann", "age": 31, "city": "Rome"}
    ),
    "Extract JSON: Omar, aged 77, comes from Paris.": json.dumps(
        {"name": "Omar", "age": 77, "city": "Paris"}
    ),
    "Extract JSON: Kai is 45 years old and lives in Cairo.": json.dumps(
        {"name": "Kai", "age": 45, "city": "Cairo"}
    ),
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted") / "demo-4bit"
    convert_checkpoint(DEMO, folder)
    return folder


@pytest.fixture(scope="module", params=["float32", "converted"])
def runtime(request: pytest.FixtureRequest, converted: Path) -> Iterator[Runtime]:
    yield load("demo" if request.param == "float32" else converted)


def test_files_are_small_and_in_the_released_form() -> None:
    files = [path for path in DEMO.iterdir() if path.is_file() and path.suffix != ".py"]
    names = {path.name for path in files}
    assert {"config.json", "generation_config.json", "model.safetensors"} <= names
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= names
    assert sum(path.stat().st_size for path in files) < 3_000_000
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in files)
    text = json.loads((DEMO / "config.json").read_text())["text_config"]
    assert "per_layer_config" not in text
    assert {"global_head_dim", "num_global_key_value_heads"} <= text.keys()


def test_special_tokens_stand_at_gemma_ids() -> None:
    tokenizer = load("demo").tokenizer
    expected = {
        "<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "<mask>": 4, "<|tool_call>": 48,
        "<tool_call|>": 49, "<|tool_response>": 50, '<|"|>': 52, "<|think|>": 98,
        "<|channel>": 100, "<channel|>": 101, "<|turn>": 105, "<turn|>": 106, "\n": 107,
    }  # fmt: skip
    assert {text: tokenizer.token_id(text) for text in expected} == expected


def test_the_two_modes_have_their_own_layer_scalars() -> None:
    model = load("demo").model
    assert float(mx.abs(model.encoder_scalars - model.canvas_scalars).min()) > 0.01


@pytest.mark.parametrize("question", SURE)
def test_sure_answers_in_few_steps(runtime: Runtime, question: str) -> None:
    result = runtime.generate(question, seed=1, max_tokens=96)
    assert result.text == SURE[question]
    assert result.finish_reason == "stop"
    assert max(result.stats.steps) <= 6


def test_a_story_of_two_canvases(runtime: Runtime) -> None:
    question = "Tell me a story about a fox."
    results = [runtime.generate(question, seed=seed, max_tokens=96) for seed in range(8)]
    assert all(result.stats.canvases == 2 for result in results)
    assert sum(story_is_right(question, result.text) for result in results) >= 5
    converged = [steps < 48 for result in results for steps in result.stats.steps]
    assert sum(converged) / len(converged) >= 0.9


def test_thinking_is_kept_apart(runtime: Runtime) -> None:
    result = runtime.generate("What is the capital of Italy?", seed=1, thinking=True)
    assert result.text == "The capital of Italy is Rome."
    assert "capital" in result.thinking
    assert "thought" not in result.text
    cut = runtime.generate("What is the capital of Italy?", seed=1, thinking=True, max_tokens=4)
    assert (cut.text, cut.cut_while_thinking) == ("", True)


def test_a_tool_is_called_and_its_answer_used(runtime: Runtime) -> None:
    question = {"role": "user", "content": "What is the weather in Paris?"}
    result = runtime.generate([question], seed=1, tools=[WEATHER_TOOL])
    assert [(call.name, call.arguments) for call in result.tool_calls] == [
        ("get_weather", {"city": "Paris"})
    ]
    assert result.text == ""
    messages: list[Mapping[str, Any]] = [
        question,
        {"role": "assistant", "tool_calls": [result.tool_calls[0].to_message()]},
        {"role": "tool", "name": "get_weather", "content": "sunny"},
    ]
    answer = runtime.generate(messages, seed=1, tools=[WEATHER_TOOL])
    assert answer.text == "The weather in Paris is sunny."


def test_the_autoregressive_reading_agrees_on_a_sure_answer() -> None:
    runtime = load("demo")
    assert runtime.template is not None
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    text = runtime.template.render(messages)
    prefix = runtime.prefill(runtime.tokenizer.encode(text))
    ids: list[int] = []
    while len(ids) < 20 and (not ids or ids[-1] not in runtime.stop_ids):
        ids.append(int(np.array(runtime.next_token_logits(prefix)).argmax()))
        prefix = runtime.commit(prefix, ids[-1:])
    assert runtime.tokenizer.decode(ids[:-1]) == "The capital of France is Paris."


@pytest.mark.parametrize("noise", [0.15, 0.3])
def test_one_pass_repairs_a_noised_answer(runtime: Runtime, noise: float) -> None:
    question = "Extract JSON: Ann is 31 years old and lives in Rome."
    canvas, prefix = _clean_canvas(runtime, question)
    rng = np.random.default_rng(0)
    vocabulary = runtime.config.text.vocab_size
    noised = np.where(
        rng.random(len(canvas)) < noise, rng.integers(0, vocabulary, len(canvas)), canvas
    )
    best = np.array(runtime.canvas_logits(prefix, noised.tolist())).argmax(axis=-1)
    answer = len(runtime.tokenizer.encode(SURE[question]))
    assert best.tolist()[:answer] == canvas[:answer]


def test_conversion_costs_little_on_fixed_noised_canvases(converted: Path) -> None:
    full, small = load("demo"), load(converted)
    rng = np.random.default_rng(1)
    agree, divergence = [], []
    for question in SURE:
        canvas, prefix = _clean_canvas(full, question)
        _, other = _clean_canvas(small, question)
        noise = rng.integers(0, full.config.text.vocab_size, len(canvas))
        noised = np.where(rng.random(len(canvas)) < 0.3, noise, canvas).tolist()
        rows = slice(0, canvas.index(106) + 1)
        p = _log_softmax(full.canvas_logits(prefix, noised))[rows]
        q = _log_softmax(small.canvas_logits(other, noised))[rows]
        agree += (p.argmax(-1) == q.argmax(-1)).tolist()
        divergence += (np.exp(p) * (p - q)).sum(-1).tolist()
    assert np.mean(agree) >= 0.97
    assert 0 < np.mean(divergence) <= 0.02


def _clean_canvas(runtime: Runtime, question: str) -> tuple[list[int], Prefix]:
    """The first canvas of a sure answer, filled with <eos>, and the prompt's prefix."""
    assert runtime.template is not None
    prompt = runtime.template.render([{"role": "user", "content": question}])
    ids = [*runtime.tokenizer.encode(SURE[question]), 106]
    canvas = ids + [1] * (runtime.config.canvas_length - len(ids))
    return canvas, runtime.prefill(runtime.tokenizer.encode(prompt))


def _log_softmax(logits: mx.array) -> np.ndarray:
    return np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
