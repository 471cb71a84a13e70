"""Router and experts against a plain loop, with every kind of lopsided routing."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from mlx_diffusiongemma.model.moe import geglu
from tests.parity.cases import LAYER, Case, make_weights
from tests.parity.ours import build_ours

CASE = Case("moe", 930, kinds="f", experts=8, top_k=3, hidden=24, expert_width=20)
Array = npt.NDArray[np.float64]


def gelu(x: Array) -> Array:
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def plain_experts(x: Array, experts: npt.NDArray[np.int64], weights: Array) -> Array:
    """One token and one expert after the other, in float64."""
    stored = make_weights(CASE)
    gate_up = stored[f"{LAYER}.0.experts.gate_up_proj.weight"].astype(np.float64)
    down = stored[f"{LAYER}.0.experts.down_proj.weight"].astype(np.float64)
    out = np.zeros_like(x)
    for token in range(len(x)):
        for expert, weight in zip(experts[token], weights[token], strict=True):
            gate, up = np.split(gate_up[expert] @ x[token], 2)
            out[token] += weight * (down[expert] @ (gelu(gate) * up))
    return out


def routings() -> dict[str, npt.NDArray[np.int64]]:
    random = np.random.RandomState(1)
    return {
        "every-token-to-one-expert": np.full((33, 1), 5),
        "first-and-last-only": np.tile([[7, 0]], (17, 1)),
        "most-experts-empty": np.tile([[2, 3, 1]], (9, 1)),
        "one-token": np.array([[6, 1, 4]]),
        "every-expert": np.array([random.permutation(8) for _ in range(5)]),
        "random": np.array([random.permutation(8)[:3] for _ in range(64)]),
        "one-odd-token": np.array([[0]] * 31 + [[7]]),
    }


@pytest.mark.parametrize("name", routings())
def test_experts_equal_the_plain_loop(name: str) -> None:
    experts = routings()[name]
    random = np.random.RandomState(2)
    x = random.normal(0, 1, (len(experts), CASE.hidden))
    weights = random.uniform(0.1, 1.5, experts.shape)
    model = build_ours(CASE)
    ours = model.layers[0].experts(
        mx.array(x.astype(np.float32)),
        mx.array(experts.astype(np.uint32)),
        mx.array(weights.astype(np.float32)),
    )
    assert np.abs(np.array(ours) - plain_experts(x, experts, weights)).max() < 1e-5


def test_router_equals_the_plain_formula() -> None:
    stored = {name: value.astype(np.float64) for name, value in make_weights(CASE).items()}
    path = f"{LAYER}.0.router"
    x = np.random.RandomState(3).normal(0, 4, (200, CASE.hidden))
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    scaled = normed * stored[f"{path}.scale"] * CASE.hidden**-0.5
    scores = scaled @ stored[f"{path}.proj.weight"].T
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    expected = np.argsort(-p, axis=-1)[:, : CASE.top_k]
    top = np.take_along_axis(p, expected, axis=-1)
    factors = top / top.sum(-1, keepdims=True) * stored[f"{path}.per_expert_scale"][expected]

    experts, weights = build_ours(CASE).layers[0].router(mx.array(x.astype(np.float32)))
    order = np.argsort(-np.array(mx.take_along_axis(mx.array(p.astype(np.float32)), experts, -1)))
    chosen = np.take_along_axis(np.array(experts).astype(np.int64), order, axis=-1)
    assert (chosen == expected).all()
    sorted_weights = np.take_along_axis(np.array(weights), order, axis=-1)
    assert np.abs(sorted_weights - factors).max() < 1e-5


def test_router_sees_the_raw_stream() -> None:
    """A longer stream routes the same: only its direction counts."""
    router = build_ours(CASE).layers[0].router
    x = mx.array(np.random.RandomState(4).normal(0, 1, (50, CASE.hidden)).astype(np.float32))
    first, second = router(x), router(x * 64)
    assert (mx.sort(first[0], axis=-1) == mx.sort(second[0], axis=-1)).all().item()


def test_geglu_is_the_tanh_form() -> None:
    x = np.linspace(-12, 12, 2001)
    ours = np.array(geglu(mx.array(x.astype(np.float32)), mx.ones(x.shape)))
    assert np.abs(ours - gelu(x)).max() < 2e-6


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_geglu_of_large_values_is_finite(dtype: mx.Dtype) -> None:
    x = mx.array([-3e4, -300.0, -50.0, 0.0, 50.0, 300.0, 3e4]).astype(dtype)
    out = geglu(x, mx.ones_like(x))
    assert out.dtype == dtype
    assert np.array(out.astype(mx.float32)) == pytest.approx([0, 0, 0, 0, 50, 300, 3e4], rel=0.01)
