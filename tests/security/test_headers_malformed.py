"""Every broken model folder ends in one ModelError sentence, before any array is loaded."""

from __future__ import annotations

import copy
import json
import math
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from mlx_diffusiongemma.checkpoint.header import DTYPE_BYTES, read_header
from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.weights import load_weights
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import tiny_config, tiny_weights, write_checkpoint
from tests.security.malformed import CASES, join

COUNT_AT_LEAST = 40


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config()
    folder = tmp_path_factory.mktemp("good") / "model"
    return write_checkpoint(folder, config, tiny_weights(config), shards=2)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


def load(folder: Path) -> Any:
    return load_weights(open_checkpoint(folder), read_config(folder))


def test_the_undamaged_folder_loads(folder: Path) -> None:
    assert load(folder).weights


def test_there_are_many_cases() -> None:
    assert len(CASES) >= COUNT_AT_LEAST


@pytest.mark.parametrize("name", CASES)
def test_damage_is_one_sentence(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CASES[name](folder)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a file was loaded before it was checked")

    monkeypatch.setattr(mx, "load", forbidden)
    with pytest.raises(ModelError) as caught:
        load(folder)
    for sentence in (caught.value.message, caught.value.hint or "x."):
        assert sentence.isascii() and sentence.isprintable() and sentence.endswith((".", "?"))
        assert len(sentence) < 400


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 4, 2**40, 1.0, "F32", "", [], [0, 4], [-1, -4], {}]
)
TENSORS = st.lists(
    st.tuples(st.sampled_from(["F32", "BF16", "U8"]), st.lists(st.integers(0, 3), max_size=3)),
    min_size=1,
    max_size=3,
)
FAULTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["dtype", "shape", "data_offsets", "entry", "first", "last"]),
        ODD,
    ),
    max_size=2,
)


def valid_header(tensors: list[tuple[str, list[int]]]) -> tuple[dict[str, Any], int]:
    """A good header and the size of its data."""
    header: dict[str, Any] = {}
    end = 0
    for number, (dtype, shape) in enumerate(tensors):
        start, end = end, end + DTYPE_BYTES[dtype] * math.prod(shape)
        header[str(number)] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    return header, end


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(tensors=TENSORS, faults=FAULTS, more=st.sampled_from([0, 0, 0, 1, -1]))
def test_nothing_the_safetensors_library_refuses_is_accepted(
    tensors: list[tuple[str, list[int]]],
    faults: list[tuple[int, str, Any]],
    more: int,
    tmp_path: Path,
) -> None:
    header, size = valid_header(tensors)
    for number, part, value in faults:
        entry = header[str(number % len(tensors))]
        if part == "entry":
            header[str(number % len(tensors))] = copy.deepcopy(value)
        elif isinstance(entry, dict) and part in ("first", "last"):
            offsets = entry.get("data_offsets")
            if isinstance(offsets, list) and offsets:
                changed = [*offsets]
                changed[0 if part == "first" else -1] = value
                entry["data_offsets"] = changed
        elif isinstance(entry, dict):
            entry[part] = copy.deepcopy(value)
    path = tmp_path / "x.safetensors"
    join(path, json.dumps(header).encode(), bytes(max(size + more, 0)))
    try:
        found = read_header(path)
    except ModelError:
        assert faults or more
        return
    try:
        with safe_open(path, framework="np") as other:
            assert set(other.keys()) == set(found)
    except SafetensorError as error:
        raise AssertionError(f"accepted, but the library says: {error}") from error


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelError):
        read_header(path)
