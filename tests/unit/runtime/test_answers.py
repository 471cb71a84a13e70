"""Answers through the runtime: lengths, seeds, texts, settings, threads, odd conversations."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlx_diffusiongemma import (
    CanvasDone,
    CanvasStarted,
    DiffusionGemmaError,
    Finished,
    ModelError,
    Result,
    Runtime,
    Step,
    UsageError,
    load,
)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33])
def test_exactly_max_tokens_are_emitted(runtime: Runtime, count: int) -> None:
    result = runtime.generate("hi", max_tokens=count, seed=1)
    assert len(result.token_ids) == result.stats.tokens == count
    assert result.finish_reason == "length"
    assert result.stats.canvases == -(-count // runtime.config.canvas_length)


def test_events_come_in_order_and_their_texts_join(runtime: Runtime) -> None:
    for seed in range(25):
        stream = runtime.stream("hi", max_tokens=40, seed=seed, steps=2)
        events = list(stream)
        kinds = [type(event) for event in events]
        canvas = [CanvasStarted, Step, Step, CanvasDone]
        assert kinds == [*canvas * 3, Finished]
        ends = [event for event in events if isinstance(event, CanvasDone | Finished)]
        assert "".join(event.text for event in ends) == stream.result.text
        assert "".join(event.thinking for event in ends) == stream.result.thinking
        done = [event for event in events if isinstance(event, CanvasDone)]
        assert sum((event.token_ids for event in done), ()) == stream.result.token_ids


def test_text_equals_decoding_all_ids_at_once(runtime: Runtime) -> None:
    special = runtime.tokenizer.special_ids
    for seed in range(40):
        result = runtime.generate("hi", max_tokens=48, seed=seed, steps=1)
        if any(token in special for token in result.token_ids):
            continue
        assert result.text == runtime.tokenizer.decode(result.token_ids)


def test_seed_repeats_a_run_and_is_told(runtime: Runtime) -> None:
    first = runtime.generate("hi", max_tokens=20, seed=7)
    for _ in range(4):
        assert runtime.generate("hi", max_tokens=20, seed=7).token_ids == first.token_ids
    assert runtime.generate("hi", max_tokens=20, seed=8).token_ids != first.token_ids
    drawn = runtime.generate("hi", max_tokens=20)
    again = runtime.generate("hi", max_tokens=20, seed=drawn.seed)
    assert again.token_ids == drawn.token_ids
    assert runtime.generate("hi", max_tokens=20).seed != drawn.seed


def test_temperature_zero_has_a_meaning(runtime: Runtime) -> None:
    cold = runtime.generate("hi", max_tokens=16, seed=3, temperature=0)
    assert cold.token_ids == runtime.generate("hi", max_tokens=16, seed=3, temperature=0).token_ids
    assert cold.token_ids != runtime.generate("hi", max_tokens=16, seed=3).token_ids
    flat = runtime.generate("hi", max_tokens=16, seed=3, t_min=0, t_max=0)
    assert len(flat.token_ids) == 16


def test_checkpoint_defaults_are_used_and_flags_win(
    make_checkpoint: Callable[..., Path],
) -> None:
    generation = {
        "max_new_tokens": 24,
        "max_denoising_steps": 5,
        "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.7},
        "t_min": 0.3,
        "t_max": 0.9,
        "stability_threshold": 2,
        "confidence_threshold": 0.02,
    }
    runtime = load(make_checkpoint(generation=generation, canvas_length=12))
    runtime.stop_ids = frozenset()
    settings = runtime.settings()
    assert (settings.max_steps, settings.entropy_bound) == (5, 0.7)
    assert (settings.t_min, settings.t_max) == (0.3, 0.9)
    assert (settings.stability_threshold, settings.confidence_threshold) == (2, 0.02)
    result = runtime.generate("hi", seed=0)
    assert len(result.token_ids) == 24
    assert result.stats.canvases == 2
    assert max(result.stats.steps) <= 5
    assert runtime.settings(steps=3, t_min=0.5).max_steps == 3
    assert runtime.notices == ()


def test_missing_generation_config_is_told(make_checkpoint: Callable[..., Path]) -> None:
    runtime = load(make_checkpoint(generation=None))
    assert runtime.notices
    assert runtime.settings().max_steps == 48


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"max_tokens": 2.5},
        {"max_tokens": True},
        {"seed": -1},
        {"seed": 2**64},
        {"steps": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"entropy_bound": 0},
        {"t_min": 0.9, "t_max": 0.1},
        {"sampler": "top-k"},
        {"raw": True, "system": "be brief"},
    ],
)
def test_impossible_values_are_refused_before_work(runtime: Runtime, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        runtime.stream("hi", **wrong)


@pytest.mark.parametrize("name", ["canvas_ids", "top_k", "max_new_tokens"])
def test_unknown_keywords_are_refused(runtime: Runtime, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        runtime.generate("hi", **{name: 1})  # type: ignore[arg-type]


def test_prompt_that_leaves_no_room_for_a_canvas(make_checkpoint: Callable[..., Path]) -> None:
    runtime = load(make_checkpoint(max_position_embeddings=64))
    runtime.stop_ids = frozenset()
    with pytest.raises(UsageError, match="context of 64"):
        runtime.stream("a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2)
    result = runtime.generate("hi", max_tokens=500, seed=0, steps=1)
    assert result.finish_reason == "context"
    assert len(result.token_ids) == (64 - result.prompt_tokens) // 16 * 16


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "Be brief."}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    ],
)
def test_odd_but_legal_conversations(runtime: Runtime, messages: list[dict[str, str]]) -> None:
    assert len(runtime.generate(messages, max_tokens=4, seed=0).token_ids) == 4
    assert len(runtime.generate("next", max_tokens=4, seed=0).token_ids) == 4


def test_turns_that_reuse_the_prompt_equal_fresh_runs(runtime: Runtime, folder: Path) -> None:
    messages: list[dict[str, str]] = []
    reused = []
    for turn in range(4):
        messages.append({"role": "user", "content": f"turn {turn} " + "word " * 150})
        kept = runtime.generate(messages, max_tokens=20, seed=turn, steps=3)
        fresh = load(folder)
        fresh.stop_ids = frozenset()
        alone = fresh.generate(messages, max_tokens=20, seed=turn, steps=3)
        assert kept.token_ids == alone.token_ids
        reused.append(kept.stats.reused_tokens)
        messages.append({"role": "assistant", "content": kept.text})
    assert reused[-1] > 0
    del messages[-2:]  # take the last turn back, ask something else
    messages.append({"role": "user", "content": "another end"})
    fresh = load(folder)
    fresh.stop_ids = frozenset()
    again = runtime.generate(messages, max_tokens=20, seed=9, steps=3)
    assert again.token_ids == fresh.generate(messages, max_tokens=20, seed=9, steps=3).token_ids


def test_prefill_progress_reaches_the_whole_prompt(runtime: Runtime) -> None:
    seen: list[tuple[int, int]] = []
    result = runtime.generate(
        "word " * 1200,
        max_tokens=1,
        seed=0,
        steps=1,
        on_prefill=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (result.prompt_tokens, result.prompt_tokens)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) == -(-result.prompt_tokens // 512)


def test_generate_in_another_thread_than_load(runtime: Runtime) -> None:
    expected = runtime.generate("hi", max_tokens=20, seed=1).token_ids
    results: list[Result] = []
    worker = threading.Thread(
        target=lambda: results.append(runtime.generate("hi", max_tokens=20, seed=1))
    )
    worker.start()
    worker.join()
    assert results[0].token_ids == expected


def test_one_answer_at_a_time(runtime: Runtime) -> None:
    stream = runtime.stream("hi", max_tokens=20, seed=1)
    next(stream)
    with pytest.raises(DiffusionGemmaError, match="already answering"):
        runtime.generate("hi", max_tokens=1)
    with pytest.raises(DiffusionGemmaError, match="not complete"):
        _ = stream.result
    stream.close()
    assert runtime.generate("hi", max_tokens=1, seed=1).stats.tokens == 1


def test_raw_prompts_skip_the_template(runtime: Runtime) -> None:
    result = runtime.generate("<bos><|turn>user\nhi<turn|>\n", max_tokens=1, seed=0, raw=True)
    plain = runtime.tokenizer.encode("<bos><|turn>user\nhi<turn|>\n")
    assert result.prompt_tokens == len(plain)
    with pytest.raises(UsageError, match="empty"):
        runtime.stream("", raw=True)


def test_token_past_the_models_vocabulary_is_refused_when_used(
    make_checkpoint: Callable[..., Path],
) -> None:
    folder = make_checkpoint()
    path = folder / "tokenizer.json"
    tokens = json.loads(path.read_text())
    beyond = len(tokens["model"]["vocab"])
    tokens["added_tokens"].append(
        {
            "id": beyond,
            "content": "<|video2|>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    )
    path.write_text(json.dumps(tokens))
    runtime = load(folder)
    assert runtime.generate("hi", max_tokens=1, seed=0).stats.tokens == 1
    with pytest.raises(UsageError, match="video2"):
        runtime.stream("<bos><|video2|>", raw=True)


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja"])
def test_damaged_small_files_are_told_before_weights_are_read(
    make_checkpoint: Callable[..., Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint()
    (folder / name).write_text("{% if %}{")

    def read_weights(*_: Any, **__: Any) -> None:
        raise AssertionError("the weights were read first")

    monkeypatch.setattr("mlx_diffusiongemma.runtime.load_weights", read_weights)
    with pytest.raises(ModelError):
        load(folder)
