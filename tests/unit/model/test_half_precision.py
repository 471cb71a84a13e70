"""float16 and bfloat16: finite numbers, float32 where it matters, nearly the same predictions."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from mlx_diffusiongemma.config import parse_config
from mlx_diffusiongemma.model.transformer import DiffusionGemma
from tests.parity.cases import Case, config_json, make_weights
from tests.parity.facts import trial
from tests.parity.ours import build_ours

CASE = Case(
    "half", 940, kinds="sf", prompt=24, canvas=100, window=8, embedding_gain=5.0, branch_gain=0.1
)
by_dtype = pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["float16", "bfloat16"])


def build(dtype: mx.Dtype, scale: float) -> DiffusionGemma:
    """The case with every projection of the layers scaled up."""
    weights = {
        name: mx.array(array) * (scale if "_proj" in name and "layers" in name else 1)
        for name, array in make_weights(CASE).items()
    }
    return DiffusionGemma(parse_config(config_json(CASE), None), weights, dtype)


def logits(model: DiffusionGemma) -> list[npt.NDArray[np.float32]]:
    plan = trial(CASE)
    prefix = model.prefill(plan.prompt)
    first = model.canvas_logits(prefix, mx.array(plan.canvases[0]))
    second = model.canvas_logits(prefix, mx.array(plan.second[0]), first / 0.7)
    assert first.dtype == second.dtype == mx.float32
    return [np.array(first), np.array(second)]


@by_dtype
@pytest.mark.parametrize("scale", [1.0, 4.0, 10.0])
def test_finite_and_the_same_predictions(dtype: mx.Dtype, scale: float) -> None:
    exact = logits(build(mx.float32, scale))
    for half, full in zip(logits(build(dtype, scale)), exact, strict=True):
        assert np.isfinite(half).all()
        assert (half.argmax(-1) == full.argmax(-1)).mean() >= 0.99


@by_dtype
def test_everything_held_is_in_that_type(dtype: mx.Dtype) -> None:
    model = build_ours(CASE, dtype)
    prefix = model.prefill(trial(CASE).prompt)
    assert {array.dtype for array in prefix.arrays} == {dtype}
    assert model.embed_tokens.weight.dtype == dtype
    assert model.next_token_logits(prefix).dtype == mx.float32


def test_softcap_is_computed_in_float32() -> None:
    """Near the cap bfloat16 has steps of 0.125: logits would tie that are not equal."""
    model = build_ours(CASE, mx.bfloat16)
    hidden = (mx.arange(1, 9)[:, None] * mx.ones((1, CASE.hidden))).astype(mx.bfloat16) * 3
    raw = model.embed_tokens.head(hidden[None]).astype(mx.float32)
    exact = 30 * np.tanh(np.array(raw, dtype=np.float64) / 30)
    assert np.abs(np.array(model.logits(hidden[None])) - exact).max() < 1e-4


def test_embedding_scale_is_rounded_to_the_type() -> None:
    """As in the reference: sqrt(2816) is 53 in bfloat16."""
    assert mx.array(2816**0.5, dtype=mx.bfloat16).item() == 53.0
    model = build_ours(CASE, mx.bfloat16)
    assert model.embed_scale.dtype == mx.bfloat16
