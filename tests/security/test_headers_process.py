"""The same damage seen from outside: a process ends in order, quickly, with its one sentence."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.checkpoints import tiny_config, tiny_weights, write_checkpoint
from tests.security.malformed import CASES

ROOT = Path(__file__).parents[2]
SAMPLE = (
    "empty file",
    "huge length",
    "header nested",
    "negative shape",
    "overlap",
    "data missing",
    "offsets past the end",
    "index climbs out",
    "index is a pipe",
    "shard a pipe",
    "shard links out",
    "only pickle",
    "config nested",
    "config a million layers",
    "config huge experts",
)
PROGRAM = """
import sys
from pathlib import Path
from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.weights import load_weights
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.errors import ModelError

for name in sys.argv[1:]:
    try:
        load_weights(open_checkpoint(Path(name)), read_config(Path(name)))
    except ModelError as error:
        print(error.message)
"""


def test_processes_end_in_order(tmp_path: Path) -> None:
    config = tiny_config()
    weights = tiny_weights(config)
    folders = []
    for number, name in enumerate(SAMPLE):
        folder = tmp_path / str(number) / "model"
        write_checkpoint(folder, config, weights, shards=2)
        CASES[name](folder)
        folders.append(folder)

    def run(part: list[Path]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, *map(str, part)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)

    # Three at a time in one process: what the first leaves behind must not break the next.
    parts = [folders[start : start + 3] for start in range(0, len(folders), 3)]
    with ThreadPoolExecutor(2) as pool:
        for part, done in zip(parts, pool.map(run, parts), strict=True):
            assert (done.returncode, done.stderr) == (0, "")
            assert len(done.stdout.splitlines()) == len(part)
