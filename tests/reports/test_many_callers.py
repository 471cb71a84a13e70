"""One runtime, several threads and conversations: a right answer or one clear error.

Elsewhere a model loaded in one thread could not be used from another, and a reused cache let one
conversation read another's words.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mlx_diffusiongemma import DiffusionGemmaError, Result, Runtime, load
from tests.reports.models import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("callers") / "model", ends=[])


def ask(runtime: Runtime, seed: int, prompt: str = "hi") -> Result:
    return runtime.generate(prompt, max_tokens=32, steps=2, seed=seed)


def test_two_threads_at_once_answer_right_or_are_refused(model: Path) -> None:
    runtime = load(model)
    expected = {seed: ask(runtime, seed).token_ids for seed in (1, 2)}
    found: dict[int, tuple[int, ...]] = {}
    refusals: list[str] = []
    start = threading.Barrier(2)

    def work(seed: int) -> None:
        start.wait()
        try:
            found[seed] = ask(runtime, seed).token_ids
        except DiffusionGemmaError as error:
            refusals.append(error.message)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found and len(found) + len(refusals) == 2
    assert all(found[seed] == expected[seed] for seed in found)
    assert refusals in ([], ["This runtime is already answering."])
    assert ask(runtime, 1).token_ids == expected[1]


def test_two_runtimes_in_two_threads(model: Path) -> None:
    expected = ask(load(model), 1).token_ids
    found: list[tuple[int, ...]] = []

    def work() -> None:
        found.append(ask(load(model), 1).token_ids)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [expected] * 2


def test_another_conversation_leaves_nothing_behind(model: Path) -> None:
    """Both are longer than what is kept for the next turn, and begin alike."""
    secret, other = ("".join(f"{word} {i} " for i in range(400)) for word in ("cat", "dog"))
    runtime = load(model)
    ask(runtime, 1, secret)
    after = ask(runtime, 2, other)
    assert after.stats.prompt_tokens > 600 and after.stats.reused_tokens == 0
    assert after.token_ids == ask(load(model), 2, other).token_ids
    assert ask(runtime, 1, secret).token_ids == ask(load(model), 1, secret).token_ids


def test_two_prompts_at_once_are_refused_by_name(model: Path) -> None:
    """There is no batch; a list of texts must not be taken for something else."""
    with pytest.raises(DiffusionGemmaError, match="Message 1 is a str"):
        load(model).generate(["hi", "a longer prompt"])  # type: ignore[list-item]
