"""What both implementations must agree on for a case, and the trial that produces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.parity.cases import Case

# Largest difference of logits in float32 that counts as agreement.
TOLERANCE = 1e-4

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """Ids to feed: a prompt, then per canvas those of a first and a self-conditioned pass.

    The first pass's canvas is what is committed before the next one.
    """

    prompt: list[int]
    canvases: list[list[int]]
    second: list[list[int]]
    temperature: float


@dataclass(frozen=True)
class CanvasFacts:
    """Logits (L, V) of one canvas: without self-conditioning, then with that pass's logits."""

    first: Array
    second: Array


@dataclass(frozen=True)
class Facts:
    """Autoregressive logits (n, V), prefix keys and values a layer (H_kv, n, d), and canvases."""

    ar_logits: Array
    keys: list[Array]
    values: list[Array]
    canvases: list[CanvasFacts]

    def named(self) -> dict[str, Array]:
        """All arrays under flat names."""
        arrays = {"ar_logits": self.ar_logits}
        for i, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            arrays |= {f"keys_{i}": keys, f"values_{i}": values}
        for i, canvas in enumerate(self.canvases):
            arrays |= {f"canvas_{i}_first": canvas.first, f"canvas_{i}_second": canvas.second}
        return arrays


def trial(case: Case) -> Trial:
    """The case's trial."""
    numbers = range(case.canvases)
    return Trial(
        prompt=case.ids(1, case.prompt),
        canvases=[case.ids(10 + i, case.canvas) for i in numbers],
        second=[case.ids(50 + i, case.canvas) for i in numbers],
        temperature=0.7,
    )


def differences(ours: Facts, theirs: Facts) -> dict[str, float]:
    """Largest absolute difference of every array; shapes must be equal."""
    mine, other = ours.named(), theirs.named()
    assert mine.keys() == other.keys()
    result = {}
    for name, array in mine.items():
        assert array.shape == other[name].shape, (name, array.shape, other[name].shape)
        assert np.isfinite(array).all(), name
        result[name] = float(np.abs(array - other[name]).max(initial=0.0))
    return result


def assert_agree(ours: Facts, theirs: Facts, tolerance: float = TOLERANCE) -> float:
    """Every array within `tolerance` and every logit row with the same argmax; the worst gap."""
    gaps = differences(ours, theirs)
    bad = {name: gap for name, gap in gaps.items() if gap > tolerance}
    assert not bad, bad
    for name, array in ours.named().items():
        if "canvas" in name or "logits" in name:
            same = array.argmax(-1) == theirs.named()[name].argmax(-1)
            assert same.all(), f"argmax of {name} differs at {np.flatnonzero(~same)}"
    return max(gaps.values())
