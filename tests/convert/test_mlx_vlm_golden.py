"""mlx-vlm's own conversions load here with mlx-vlm's logits, and ours are the same files.

tests/peer/golden.py made the committed folders with mlx-vlm 0.7.10; nothing of it is needed here.
"""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.plan import plan_weights
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.convert import convert_checkpoint
from tests.convert.folders import read_json, same_bytes, tensors
from tests.peer.compare import assert_same, our_logits
from tests.peer.golden import CONVERSIONS, DATA, LOGITS, write_source


@pytest.mark.parametrize("name", CONVERSIONS)
def test_their_conversion_gives_their_logits(name: str) -> None:
    with np.load(DATA / name / LOGITS) as golden:
        recorded = dict(golden)
    assert_same(our_logits(DATA / name, recorded), recorded)


def test_the_table_of_the_mxfp4_conversion_is_mxfp4() -> None:
    config = read_config(DATA / "mlx_vlm_mxfp4")
    plan = plan_weights(open_checkpoint(DATA / "mlx_vlm_mxfp4"), config)
    packings = [module.quantization for module in plan.modules.values() if module.quantization]
    assert plan.modules["model.decoder.embed_tokens"].quantization in packings
    assert {spec.mode for spec in packings} == {"mxfp4"}


def test_our_conversion_is_theirs(tmp_path: Path) -> None:
    """The same names, types and shapes, the same config, and the same values.

    Bit for bit on a CPU; another device may round a value to its neighbour.
    """
    convert_checkpoint(write_source(tmp_path / "source"), tmp_path / "out")
    ours, theirs = tensors(tmp_path / "out"), tensors(DATA / "mlx_vlm_4bit")
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert (array.dtype, array.shape) == (theirs[name].dtype, theirs[name].shape), name
        if mx.default_device() == mx.Device(mx.cpu) or array.dtype != mx.uint32:
            assert same_bytes(array, theirs[name]), name
    written = read_json(tmp_path / "out" / "config.json")
    assert written == json.loads((DATA / "mlx_vlm_4bit" / "config.json").read_text())
