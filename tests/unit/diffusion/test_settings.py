"""The temperature schedule and the checks of the loop's knobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from mlx_diffusiongemma.errors import UsageError


def test_four_steps_use_four_known_temperatures() -> None:
    settings = DiffusionSettings(max_steps=4, t_min=0.4, t_max=0.8)
    temperatures = [settings.temperature(step) for step in (1, 2, 3, 4)]
    assert temperatures == pytest.approx([0.8, 0.7, 0.6, 0.5], abs=1e-12)


def test_released_schedule() -> None:
    settings = DiffusionSettings()
    assert settings.temperature(1) == 0.8
    assert settings.temperature(25) == pytest.approx(0.6)  # 24 of 48 steps left
    assert settings.temperature(48) == pytest.approx(0.4 + 0.4 / 48)  # t_min is never reached


def test_one_step_runs_at_t_max() -> None:
    assert DiffusionSettings(max_steps=1).temperature(1) == 0.8


def test_temperature_depends_on_the_step_limit() -> None:
    """A higher limit keeps the same step hotter: documented, and so the same here."""
    assert DiffusionSettings(max_steps=96).temperature(25) == pytest.approx(0.7)


def test_both_zero_is_a_mode() -> None:
    settings = DiffusionSettings(t_min=0.0, t_max=0.0)
    assert {settings.temperature(step) for step in range(1, 49)} == {0.0}


def test_defaults_are_the_released_values() -> None:
    settings = DiffusionSettings()
    assert (settings.max_steps, settings.t_min, settings.t_max) == (48, 0.4, 0.8)
    assert (settings.entropy_bound, settings.confidence_threshold) == (0.1, 0.005)
    assert (settings.stability_threshold, settings.sampler) == (1, "entropy-bound")
    assert settings.proposal_temperature == 1.0


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_steps", [0, -1, 1.0, 2.5, True, "4", None]),
        ("stability_threshold", [-1, 0.5, True, "1", None]),
        ("t_min", [-0.1, NAN, INFINITY, "0.4", None, True]),
        ("t_max", [-0.1, NAN, INFINITY, "0.8", None]),
        ("entropy_bound", [0, 0.0, -0.1, NAN, INFINITY, "0.1", None, True]),
        ("confidence_threshold", [-0.005, NAN, INFINITY, None]),
        ("proposal_temperature", [-1, NAN, INFINITY, "1", None]),
        ("reveal_threshold", [-0.1, 1.1, NAN, None]),
        ("sampler", ["", "Entropy-Bound", "ddim", None, 1]),
    ],
)
def test_wrong_values_are_refused_by_name(name: str, values: list[Any]) -> None:
    shown = {"max_steps": "steps", "proposal_temperature": "temperature"}.get(name, name)
    for value in values:
        with pytest.raises(UsageError) as caught:
            DiffusionSettings(**{name: value})
        assert shown in caught.value.message
        assert caught.value.message.endswith(".")
        assert "\n" not in caught.value.message


def test_t_max_below_t_min_is_refused() -> None:
    with pytest.raises(UsageError, match=r"t_max \(0.3\) must not be below t_min \(0.4\)"):
        DiffusionSettings(t_max=0.3)


def test_edges_are_accepted() -> None:
    DiffusionSettings(
        max_steps=1,
        t_min=0.5,
        t_max=0.5,
        entropy_bound=1e-9,
        confidence_threshold=100.0,
        stability_threshold=0,
        reveal_threshold=0.0,
        proposal_temperature=0,
    )
    DiffusionSettings(reveal_threshold=1, t_min=0, t_max=1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stability_threshold": 10**30}, "from 0 to 2147483647"),
        ({"max_steps": 10**5000}, "from 1 to 2147483647, not a huge number"),
        ({"t_max": 1e38}, r"from 0 to 1e\+30, not 1e\+38"),
        ({"t_max": 10**5000}, "not a huge number"),
        ({"proposal_temperature": 1e-40}, "0 or at least 1e-30"),
        ({"t_min": 0, "t_max": 1e-45}, "0 or at least 1e-30"),
    ],
)
def test_what_float32_or_the_loop_cannot_hold_is_refused_in_true_words(
    values: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        DiffusionSettings(**values)


def test_numpy_numbers_are_welcome() -> None:
    settings = DiffusionSettings(max_steps=np.int64(3), t_max=np.float32(0.5))  # type: ignore[arg-type]
    assert (settings.max_steps, type(settings.max_steps)) == (3, int)
    assert settings.temperature(1) == 0.5
    with pytest.raises(UsageError, match="whole number"):
        DiffusionSettings(max_steps=np.bool_(True))  # type: ignore[arg-type]
