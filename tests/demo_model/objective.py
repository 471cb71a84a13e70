"""The training loss of one batch: denoising, next-token and load-balance terms."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .batches import Batch
from .model import DemoModel

FULL_NOISE_SHARE = 0.25  # examples trained at t = 1, where every canvas starts
CONDITIONED_SHARE = 0.5  # rows trained with self-conditioning
NEXT_TOKEN_WEIGHT, BALANCE_WEIGHT = 0.3, 0.01
COLDEST = 0.4  # self-conditioning logits are divided by a temperature from here to 1


@dataclass(frozen=True)
class Loss:
    """The total to differentiate, and what the log shows."""

    total: Tensor
    denoising: float
    next_token: float
    balance: float
    by_row: list[float]  # mean loss of each row's response tokens


def corrupted(target: Tensor, noise: Tensor, vocabulary: int, draws: torch.Generator) -> Tensor:
    """Each token becomes a uniformly random one with its own probability `noise`."""
    replaced = torch.rand(target.shape, generator=draws) < noise
    random_ids = torch.randint(0, vocabulary, target.shape, generator=draws)
    return torch.where(replaced, random_ids, target)


def batch_loss(model: DemoModel, batch: Batch, draws: torch.Generator) -> Loss:
    rows, vocabulary = batch.target.shape[0], model.sizes.vocabulary
    level = torch.rand(rows, 1, generator=draws)
    level[torch.rand(rows, 1, generator=draws) < FULL_NOISE_SHARE] = 1.0
    canvas = corrupted(batch.target, level * batch.hidden, vocabulary, draws)

    hidden, cache = model.encode(batch.ids)
    soft = self_conditioning(model, batch, level, canvas, cache, draws)
    logits = model.logits(model.denoise(canvas, batch.prefix, cache, soft))
    each = F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), reduction="none")
    each = each.view_as(batch.weight)
    denoising = (each * batch.weight).sum() / batch.weight.sum()

    predicting = batch.next_token[:, :-1]
    predicted = model.logits(hidden[:, :-1][predicting])
    next_token = F.cross_entropy(predicted, batch.ids[:, 1:][predicting])

    balance = torch.stack(model.balance).mean()
    model.balance.clear()
    total = denoising + NEXT_TOKEN_WEIGHT * next_token + BALANCE_WEIGHT * balance
    counted = (batch.content & batch.hidden).float()
    by_row = ((each.detach() * counted).sum(1) / counted.sum(1).clamp(min=1)).tolist()
    return Loss(total, denoising.item(), next_token.item(), balance.item(), by_row)


@torch.no_grad()
def self_conditioning(
    model: DemoModel,
    batch: Batch,
    level: Tensor,
    canvas: Tensor,
    cache: list[tuple[Tensor, Tensor]],
    draws: torch.Generator,
) -> Tensor:
    """Probabilities of a first pass for the leading rows; the other rows get none.

    Half of the first passes see more noise than the second, as in an earlier denoising step.
    """
    rows = int(batch.target.shape[0] * CONDITIONED_SHARE)
    target, base = batch.target[:rows], level[:rows]
    noisier = base + (1 - base) * torch.rand(rows, 1, generator=draws)
    earlier = corrupted(target, noisier * batch.hidden[:rows], model.sizes.vocabulary, draws)
    use_earlier = torch.rand(rows, 1, generator=draws) < 0.5
    first = torch.where(use_earlier, earlier, canvas[:rows])
    past = [(keys[:rows].detach(), values[:rows].detach()) for keys, values in cache]
    logits = model.logits(model.denoise(first, batch.prefix[:rows], past, None))
    temperature = COLDEST + (1 - COLDEST) * torch.rand(rows, 1, 1, generator=draws)
    return (logits / temperature).softmax(-1)
