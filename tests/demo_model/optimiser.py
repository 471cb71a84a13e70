"""Muon for the weight matrices, AdamW for the rest, and the learning-rate schedule."""

from typing import Any

import torch
from torch import Tensor

from .weights import SCALARS, Weights

MUON_RATE, MUON_MOMENTUM, MUON_DECAY = 0.02, 0.95, 0.01
ADAM_RATE, ADAM_BETAS = 4e-3, (0.9, 0.98)
WARM_UP, FLAT_SHARE, FLOOR = 50, 0.3, 0.02


def rate_factor(step: int, steps: int) -> float:
    """Warm-up, flat for the first 30 % of the steps, then a straight line down to 0.02."""
    done = step / steps
    falling = 1.0 if done < FLAT_SHARE else max(FLOOR, (1 - done) / (1 - FLAT_SHARE))
    return min(1.0, (step + 1) / WARM_UP) * falling


def is_matrix(name: str, value: Tensor) -> bool:
    """Muon's share: projections and experts, not the embedding or the router."""
    return value.ndim >= 2 and "embed_tokens" not in name and "router" not in name


def orthogonalised(updates: Tensor) -> Tensor:
    """(N, rows, columns) -> near-orthogonal matrices, by five Newton-Schulz steps."""
    tall = updates.shape[1] > updates.shape[2]
    x = updates.transpose(1, 2) if tall else updates
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.transpose(1, 2) if tall else x


class Optimiser:
    """Steps all weights; its state can be saved and restored."""

    def __init__(self, weights: Weights) -> None:
        groups: dict[tuple[int, ...], list[Tensor]] = {}
        for name, value in weights.items():
            if is_matrix(name, value):
                groups.setdefault(tuple(value.shape), []).append(value)
        self.groups = list(groups.values())
        self.momenta = [torch.zeros(len(group), *group[0].shape) for group in self.groups]
        others = [value for name, value in weights.items() if not is_matrix(name, value)]
        assert all(name in weights for name in SCALARS)
        self.adam = torch.optim.AdamW(others, lr=ADAM_RATE, betas=ADAM_BETAS, weight_decay=0.0)
        self.weights = list(weights.values())

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """One update from the gradients, which are then dropped."""
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        rate = MUON_RATE * factor
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradient = torch.stack([value.grad for value in group if value.grad is not None])
            momentum.lerp_(gradient, 1 - MUON_MOMENTUM)
            update = gradient.lerp(momentum, MUON_MOMENTUM)
            flat = orthogonalised(update.flatten(0, -3))
            scale = max(1.0, flat.shape[1] / flat.shape[2]) ** 0.5
            for value, change in zip(group, flat.view_as(update), strict=True):
                value.mul_(1 - rate * MUON_DECAY).add_(change, alpha=-rate * scale)
        for options in self.adam.param_groups:
            options["lr"] = ADAM_RATE * factor
        self.adam.step()
        for value in self.weights:
            value.grad = None

    def state(self) -> dict[str, Any]:
        return {"momenta": self.momenta, "adam": self.adam.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.momenta = state["momenta"]
        self.adam.load_state_dict(state["adam"])
