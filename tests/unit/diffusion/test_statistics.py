"""Entropy and token probability of logit rows."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from mlx_diffusiongemma.diffusion.statistics import row_entropy, token_probability
from tests.unit.diffusion.scripted import sure


def exact_entropy(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = rows.astype(np.float64) - rows.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return np.asarray(-(np.exp(log_p) * log_p).sum(-1))


@pytest.mark.parametrize(("peak", "entropy"), [(18.0, 2.9e-3), (14.5, 7.8e-2)])
def test_one_hot_logits_of_a_large_vocabulary(peak: float, entropy: float) -> None:
    """The unit values of the reference's own tests."""
    value = row_entropy(mx.array(sure([17], vocab=10_000, peak=peak))).item()
    assert value == pytest.approx(entropy, rel=0.01)


def test_uniform_logits_are_log_of_the_vocabulary() -> None:
    assert row_entropy(mx.zeros((1, 10_000))).item() == pytest.approx(9.21, abs=5e-3)
    assert row_entropy(mx.full((1, 262_144), -30.0)).item() == pytest.approx(math.log(262_144))


def test_entropy_is_in_nats() -> None:
    assert row_entropy(mx.zeros((1, 2))).item() == pytest.approx(math.log(2))


def test_certain_rows_have_no_entropy_and_no_nan() -> None:
    """75 is the largest gap the softcap and the lowest released temperature leave."""
    rows = np.full((2, 1000), -75.0, np.float32)
    rows[0, 3], rows[1, 4] = 75.0, 1e4
    values = np.array(row_entropy(mx.array(rows)))
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 1e-6


@pytest.mark.parametrize("vocab", [1, 2, 300, 512, 513, 1152, 262_144])
@pytest.mark.parametrize("spread", [0.01, 3.0, 12.0])
def test_matches_float64(vocab: int, spread: float) -> None:
    rows = np.random.RandomState(0).normal(0, spread, (3, vocab)).astype(np.float32)
    rows[0, 0] = 5.0 + np.log(vocab)  # about as likely as all others together
    values = np.array(row_entropy(mx.array(rows)))
    assert values == pytest.approx(exact_entropy(rows), rel=5e-4, abs=1e-6)
    assert (values >= 0).all()


@pytest.mark.parametrize("peak", [12.0, 18.0, 25.0])
def test_a_peak_over_the_whole_released_vocabulary(peak: float) -> None:
    """Many tiny probabilities beside one large: a plain float32 sum loses them."""
    rows = sure([17], vocab=262_144, peak=peak)
    value = row_entropy(mx.array(rows)).item()
    assert value == pytest.approx(exact_entropy(rows)[0], rel=1e-3, abs=5e-6)
    exact = 1 / (1 + 262_143 * math.exp(-peak))
    assert token_probability(mx.array(rows), mx.array([17])).item() == pytest.approx(exact, 1e-4)


def test_token_probability() -> None:
    rows = mx.array([[0.0, math.log(3.0)], [0.0, 0.0]])
    values = token_probability(rows, mx.array([1, 0]))
    assert np.array(values) == pytest.approx([0.75, 0.5])
