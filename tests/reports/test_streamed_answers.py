"""The text that comes piece by piece is the whole answer, to the first space and the last word."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma import CanvasDone, Finished, Runtime, load
from tests.reports.models import VOCABULARY, write_model

ANSWERS, CANVAS = 200, 16


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    return load(write_model(tmp_path_factory.mktemp("stream") / "model", ends=[]))


def test_two_hundred_answers_join_up(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random ids, a third of them single bytes, so that characters are cut by canvas borders."""
    random = np.random.RandomState(0)
    tokenizer = runtime.tokenizer
    octets = [tokenizer.token_id(f"<0x{octet:02X}>") for octet in range(256)]
    likely = [token for token in octets if token is not None]
    assert likely
    plain = np.array(sorted(set(range(VOCABULARY)) - tokenizer.special_ids))

    def canvas_logits(prefix: object, canvas: mx.array, previous: mx.array | None) -> mx.array:
        ids = random.choice(plain, CANVAS)
        run = random.randint(0, CANVAS + 1)
        if random.random_sample() < 0.7:
            ids[run : run + 5] = random.choice(likely, len(ids[run : run + 5]))
        return mx.array(np.eye(VOCABULARY, dtype=np.float32)[ids] * 20)

    monkeypatch.setattr(runtime.model, "canvas_logits", canvas_logits)
    for seed in range(ANSWERS):
        count = 1 + seed % (2 * CANVAS)
        stream = runtime.stream("hi", max_tokens=count, steps=1, seed=seed)
        texts = [event.text for event in stream if isinstance(event, CanvasDone | Finished)]
        assert "".join(texts) == stream.result.text == tokenizer.decode(stream.result.token_ids)
