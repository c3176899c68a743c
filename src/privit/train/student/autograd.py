"""Functions with a backward pass of their own, because it keeps less or runs faster than autograd's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Branch = Callable[..., Tensor]
"""One side of a mix: takes the values and every parameter of the mix."""


class MixGeluIdentity(torch.autograd.Function):
    """c gelu(x) + (1 - c) x, keeping only x and c for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, c: Tensor, approximate: str) -> Tensor:
        ctx.save_for_backward(x, c)
        ctx.approximate = approximate
        return torch.lerp(x, F.gelu(x, approximate=approximate), c.to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, c = ctx.saved_tensors
        through_gelu = torch.ops.aten.gelu_backward(gradient, x, approximate=ctx.approximate)
        x_gradient = torch.lerp(gradient, through_gelu, c.to(x.dtype))
        difference = F.gelu(x, approximate=ctx.approximate).sub_(x).mul_(gradient)
        return x_gradient, difference.to(c.dtype).sum_to_size(c.shape), None


class MixSoftmaxSquared(torch.autograd.Function):
    """c softmax(s) + (1 - c) s^2 / N, keeping only s and c for the backward pass."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, c: Tensor, tokens: int) -> Tensor:
        ctx.save_for_backward(scores, c)
        ctx.tokens = tokens
        return torch.lerp(scores.square().div_(tokens), scores.softmax(dim=-1), c.to(scores.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        scores, c = ctx.saved_tensors
        exact = scores.softmax(dim=-1)
        through_softmax = torch.ops.aten._softmax_backward_data(gradient, exact, -1, scores.dtype)
        through_square = (scores * (2.0 / ctx.tokens)).mul_(gradient)
        scores_gradient = torch.lerp(through_square, through_softmax, c.to(scores.dtype))
        difference = exact.sub_(scores.square().div_(ctx.tokens)).mul_(gradient)
        return scores_gradient, difference.to(c.dtype).sum_to_size(c.shape), None


class MixRecomputed(torch.autograd.Function):
    """c exact(x) + (1 - c) stand_in(x) for any pair, keeping only x, c and the parameters.

    `exact` and `stand_in` take x and all parameters; the backward pass computes both again.
    """

    @staticmethod
    def forward(
        ctx: Any, exact: Branch, stand_in: Branch, x: Tensor, c: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.branches = exact, stand_in
        ctx.save_for_backward(x, c, *parameters)
        return torch.lerp(stand_in(x, *parameters), exact(x, *parameters), c.to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, c, *parameters = ctx.saved_tensors
        leaves = [tensor.detach().requires_grad_() for tensor in (x, *parameters)]
        with torch.enable_grad():
            exact, stand_in = (branch(*leaves) for branch in ctx.branches)
        c_gradient = (exact.detach() - stand_in.detach()).mul_(gradient).to(c.dtype).sum_to_size(c.shape)
        weighted = gradient * c.to(x.dtype)
        # A branch without a gradient (1 / N) has no part in this.
        parts = [(exact, weighted), (stand_in, gradient - weighted)]
        results, weights = zip(*(part for part in parts if part[0].requires_grad), strict=True)
        found = torch.autograd.grad(results, leaves, weights, allow_unused=True)
        return None, None, found[0], c_gradient, *found[1:]


class Reorder(torch.autograd.Function):
    """Entries of axis 1 in another order; as the order is a permutation, so is the gradient's way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return x.index_select(1, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradient.index_select(1, inverse), None, None


class Quadratic(torch.autograd.Function):
    """c2 x^2 + c1 x + c0, keeping only x and the coefficients; autograd alone would keep more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, c2: Tensor, c1: Tensor, c0: Tensor) -> Tensor:
        ctx.save_for_backward(x, c2, c1, c0)
        return (x * c2).add_(c1).mul_(x).add_(c0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, c2, c1, c0 = ctx.saved_tensors
        x_gradient = (x * (2 * c2)).add_(c1).mul_(gradient)
        c0_gradient = gradient.sum_to_size(c0.shape)
        weighted = gradient * x
        c1_gradient = weighted.sum_to_size(c1.shape)
        c2_gradient = weighted.mul_(x).sum_to_size(c2.shape)
        return x_gradient, c2_gradient, c1_gradient, c0_gradient
