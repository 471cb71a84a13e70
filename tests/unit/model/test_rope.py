"""Rotary embedding: both kinds, split-half pairs, dimensions that stay still, long positions."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from mlx_diffusiongemma.config import RopeConfig
from mlx_diffusiongemma.model.rope import rope_periods, rotate

SLIDING = RopeConfig(10_000.0)
FULL = RopeConfig(1_000_000.0, partial_rotary_factor=0.25, proportional=True)


def plain(
    x: npt.NDArray[np.float64], inverse: npt.NDArray[np.float64], offset: int
) -> npt.NDArray[np.float64]:
    """Pairs (i, i + d/2) turned by position * inverse[i], in float64."""
    angles = (offset + np.arange(x.shape[-2]))[:, None] * inverse
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def inverse_frequencies(config: RopeConfig, head_dim: int) -> npt.NDArray[np.float64]:
    inverse = config.theta ** (-2.0 * np.arange(head_dim // 2) / head_dim)
    if config.proportional:
        inverse[int(config.partial_rotary_factor * head_dim / 2) :] = 0
    return np.asarray(inverse)


@pytest.mark.parametrize(
    ("config", "head_dim"),
    [
        (SLIDING, 256),
        (FULL, 512),
        (SLIDING, 6),
        (RopeConfig(500.0, 0.5, proportional=True), 16),
        (RopeConfig(500.0, 1.0, proportional=True), 16),
        (RopeConfig(500.0, 0.3, proportional=True), 20),
        (RopeConfig(500.0, 0.01, proportional=True), 16),
    ],
)
@pytest.mark.parametrize("offset", [0, 1, 777])
def test_rotation(config: RopeConfig, head_dim: int, offset: int) -> None:
    x = np.random.RandomState(0).normal(0, 1, (1, 2, 5, head_dim))
    ours = rotate(mx.array(x.astype(np.float32)), rope_periods(config, head_dim), offset)
    expected = plain(x, inverse_frequencies(config, head_dim), offset)
    # Angles of up to a thousand are rounded to some 6e-5 in float32.
    assert np.abs(np.array(ours) - expected).max() < 5e-4


def test_released_full_layers_turn_64_of_256_pairs() -> None:
    """Dimensions 0..63 with 256..319; all others keep their values to the bit."""
    x = mx.array(np.random.RandomState(0).normal(0, 1, (1, 1, 3, 512)).astype(np.float32))
    turned = np.array(rotate(x, rope_periods(FULL, 512), 100) != x)[0, 0].any(axis=0)
    assert np.flatnonzero(turned).tolist() == [*range(64), *range(256, 320)]


def test_only_distance_matters() -> None:
    """Scores of rotated queries and keys depend on how far apart they are."""
    random = np.random.RandomState(0)
    q, k = (mx.array(random.normal(0, 1, (1, 1, 1, 64)).astype(np.float32)) for _ in "qk")
    periods = rope_periods(SLIDING, 64)
    scores = [
        (rotate(q, periods, 40 + shift) * rotate(k, periods, shift)).sum().item()
        for shift in (0, 7, 1000)
    ]
    assert scores == pytest.approx([scores[0]] * 3, abs=2e-3)


def test_frequencies_are_as_exact_as_float32_allows() -> None:
    """So that at 262,144 positions angles are off by no more than the reference's own are."""
    for config, head_dim in ((SLIDING, 256), (FULL, 512)):
        periods = np.array(rope_periods(config, head_dim)).astype(np.float64)
        inverse = inverse_frequencies(config, head_dim)
        moving = inverse > 0
        assert np.isinf(periods[~moving]).all()
        assert np.abs(periods[moving] * inverse[moving] - 1).max() < 1.2e-7
