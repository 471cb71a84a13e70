"""A conversion that is stopped half-way, and the memory of one that is not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.convert import convert_checkpoint
from tests.convert.big_source import start, write_big_source
from tests.convert.folders import fingerprint, write_source


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """130 MB in five layers."""
    folder = tmp_path_factory.mktemp("big") / "source"
    write_big_source(folder, experts=32, layers=5, shards=2)
    return folder


def stop_half_way(source: Path, output: Path, number: signal.Signals) -> int:
    """Send a signal when about half of the data is dealt with; returns the exit status."""
    with start(source, output) as process:
        assert process.stdout is not None
        for line in process.stdout:
            done, total, _ = line.split(maxsplit=2)
            if 2 * int(done) > int(total):
                os.kill(process.pid, number)
                break
        assert 2 * int(done) < 1.8 * int(total), "the signal came too late"
        process.stdout.read()
    return process.returncode


def test_ctrl_c_leaves_nothing(source: Path, tmp_path: Path) -> None:
    before = fingerprint(source)
    status = stop_half_way(source, tmp_path / "out", signal.SIGINT)
    assert status == -signal.SIGINT
    assert list(tmp_path.iterdir()) == []
    assert fingerprint(source) == before


def test_a_killed_conversion_leaves_no_model_and_is_followed_by_another(
    source: Path, tmp_path: Path
) -> None:
    status = stop_half_way(source, tmp_path / "out", signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    # No config.json yet: whoever takes the partial folder for a model is told.
    assert not (tmp_path / "out.partial" / "config.json").exists()
    convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert read_config(tmp_path / "out").text.num_experts == 32


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    """The system's own error, half-way through a weight file."""
    source = write_source(tmp_path / "source")
    with start(source, tmp_path / "out", "--limit", "60000") as process:
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 6
    assert "disk is full" in told and "Traceback" not in told
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_memory_stays_below_a_few_tensors(tmp_path: Path) -> None:
    """300 MB of weights in four files: a module at a time is held, not a file, not the model."""
    largest = write_big_source(tmp_path / "source", experts=64, layers=6, shards=4)
    files = (tmp_path / "source").glob("*.safetensors")
    assert sum(path.stat().st_size for path in files) > 300_000_000
    with start(tmp_path / "source", tmp_path / "out") as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    assert process.returncode == 0
    before, peak = json.loads(lines[-1])
    assert peak < 2.5 * largest + 500_000_000
    # The largest module is 34 MB; beside it there are its packed form and the libraries.
    assert peak - before < 120_000_000
