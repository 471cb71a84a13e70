"""Fused torch building blocks with hand-written gradients, for speed on one CPU core."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-6


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None) -> Tensor:
        mean_square = torch.linalg.vecdot(x, x).div_(x.shape[-1])
        scale = mean_square.add_(EPS).rsqrt_().unsqueeze(-1)
        normed = x * scale
        ctx.save_for_backward(normed, scale, weight)
        return normed if weight is None else normed * weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        normed, scale, weight = ctx.saved_tensors
        grad, weight_grad = grads[0], None
        if weight is not None:
            weight_grad = (grad * normed).flatten(0, -2).sum(0)
            grad = grad * weight
        along = torch.linalg.vecdot(grad, normed).unsqueeze(-1).div_(normed.shape[-1])
        return torch.addcmul(grad, normed, along, value=-1).mul_(scale), weight_grad


def rms_norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + 1e-6), times `weight` if there is one."""
    result: Tensor = _RMSNorm.apply(x, weight)
    return result


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (i, i + d/2) of the last axis; `cos` and `sin` have d/2 columns."""
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    out = torch.empty_like(x)
    torch.mul(low, cos, out=out[..., :half]).addcmul_(high, sin, value=-1)
    torch.mul(high, cos, out=out[..., half:]).addcmul_(low, sin)
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grads[0], cos, -sin), None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (..., d)."""
    result: Tensor = _Rotate.apply(x, cos, sin)
    return result


def geglu(gate_up: Tensor) -> Tensor:
    """gelu_tanh(gate) * up, both halves of the last axis."""
    gate, up = gate_up.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


class _SoftCap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cap: float) -> Tensor:
        squashed = torch.div(x, cap).tanh_()
        ctx.save_for_backward(squashed)
        return squashed * cap

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (squashed,) = ctx.saved_tensors
        slope = torch.mul(squashed, squashed).neg_().add_(1)
        return slope.mul_(grads[0]), None


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap)."""
    result: Tensor = _SoftCap.apply(x, cap)
    return result


class _Experts(torch.autograd.Function):
    """Rows sorted by expert through their own GEGLU: one gemm per expert, no slice gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate_up: Tensor, down: Tensor, counts: list[int]) -> Tensor:
        inner = x.new_empty(x.shape[0], gate_up.shape[1])
        rows = x.split(counts)
        for row, weight, out in zip(rows, gate_up, inner.split(counts), strict=True):
            torch.mm(row, weight.T, out=out)
        gate, up = inner.chunk(2, -1)
        gelu = F.gelu(gate, approximate="tanh")
        active = gelu * up
        result = torch.empty_like(x)
        for row, weight, out in zip(active.split(counts), down, result.split(counts), strict=True):
            torch.mm(row, weight.T, out=out)
        ctx.save_for_backward(x, gate_up, down, inner, gelu, active)
        ctx.counts = counts
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, gate_up, down, inner, gelu, active = ctx.saved_tensors
        counts: list[int] = ctx.counts
        grad = grads[0].contiguous()
        gate, up = inner.chunk(2, -1)
        active_grad = torch.empty_like(active)
        gate_up_grad, down_grad = torch.empty_like(gate_up), torch.empty_like(down)
        parts = zip(
            grad.split(counts), active.split(counts), active_grad.split(counts), strict=True
        )
        for expert, (grad_row, active_row, out) in enumerate(parts):
            torch.mm(grad_row, down[expert], out=out)
            torch.mm(grad_row.T, active_row, out=down_grad[expert])
        inner_grad = torch.empty_like(inner)
        gate_grad, up_grad = inner_grad.chunk(2, -1)
        torch.mul(active_grad, gelu, out=up_grad)
        through = torch.ops.aten.gelu_backward(active_grad * up, gate, approximate="tanh")
        gate_grad.copy_(through)
        x_grad = torch.empty_like(x)
        sides = zip(inner_grad.split(counts), x.split(counts), x_grad.split(counts), strict=True)
        for expert, (inner_row, row, out) in enumerate(sides):
            torch.mm(inner_row, gate_up[expert], out=out)
            torch.mm(inner_row.T, row, out=gate_up_grad[expert])
        return x_grad, gate_up_grad, down_grad, None


def experts(x: Tensor, gate_up: Tensor, down: Tensor, counts: list[int]) -> Tensor:
    """x (N, D) sorted by expert, `counts[e]` rows for expert e -> (N, D)."""
    result: Tensor = _Experts.apply(x, gate_up, down, counts)
    return result
