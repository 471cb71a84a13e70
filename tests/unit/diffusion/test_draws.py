"""Seeded draws: the same seed gives the same ids, whoever else draws."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_diffusiongemma.diffusion.draws import KeyDraws


def sequence(draws: KeyDraws, disturb: bool = False) -> list[list[int]]:
    logits = mx.array(np.random.RandomState(0).normal(0, 2, (16, 50)).astype(np.float32))
    result = []
    for number in range(4):
        if disturb:
            mx.random.seed(number)
            mx.eval(mx.random.normal((number + 1,)))
        drawn = draws.uniform(16, 50), draws.categorical(logits)
        result += [np.array(ids).tolist() for ids in drawn]
    return result


def test_same_seed_same_ids_whatever_the_global_state() -> None:
    mx.random.seed(1)
    first = sequence(KeyDraws(7))
    mx.random.seed(2)
    assert sequence(KeyDraws(7), disturb=True) == first


def test_drawing_leaves_the_global_state_alone() -> None:
    mx.random.seed(3)
    expected = np.array(mx.random.normal((4,)))
    mx.random.seed(3)
    sequence(KeyDraws(7))
    assert (np.array(mx.random.normal((4,))) == expected).all()


def test_other_seeds_other_ids() -> None:
    assert len({str(sequence(KeyDraws(seed))) for seed in range(20)}) == 20


def test_large_and_zero_seeds() -> None:
    # mx.random.key takes 64 bits.
    assert sequence(KeyDraws(0)) != sequence(KeyDraws(2**64 - 1))


def test_no_draw_repeats_another() -> None:
    draws = sequence(KeyDraws(7))
    assert len({str(ids) for ids in draws}) == len(draws)


def test_uniform_covers_the_whole_vocabulary() -> None:
    """Special ids too: the reference has no mask token and leaves nothing out."""
    ids = np.array(KeyDraws(0).uniform(20_000, 64))
    assert set(ids.tolist()) == set(range(64))
    assert np.abs(np.bincount(ids) / 20_000 - 1 / 64).max() < 0.005


def test_categorical_follows_the_distribution() -> None:
    p = np.array([0.5, 0.3, 0.15, 0.05, 0.0], np.float32)
    rows = np.broadcast_to(np.log(np.maximum(p, 1e-30)), (20_000, 5))
    ids = np.array(KeyDraws(0).categorical(mx.array(rows)))
    assert np.abs(np.bincount(ids, minlength=5) / 20_000 - p).max() < 0.015
