"""Weighted least squares from sums, so that activations are seen once and never kept.

A stand-in is a polynomial, so it is linear in its parameters. For a GELU channel the sums of w x^k
(k = 0..4) and w x^k y (k = 0..2) decide the best quadratic; for an attention head the scores' powers
times the values play the part of x^k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privit.operators import TABLE

POWERS: dict[str, dict[str, int]] = {
    entry.name: entry.powers for entry in TABLE if entry.fitted and entry.family != "static"
}
"""The polynomials that can be fitted: each parameter and the power of the input that it multiplies."""

# Keeps the equations of a channel that never varies, or of a site that never occurs, solvable.
FLOOR = 1e-9


@dataclass(frozen=True)
class Sums:
    """One least-squares problem per owner (channel or head): gram (owners, K, K), right (owners, K, T).

    The solution p minimises the weighted sum of |features p - target|^2; T targets share the features.
    """

    gram: Tensor
    right: Tensor

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.right + other.right)

    def shared(self) -> Sums:
        """The same problem with one set of parameters for all owners."""
        return Sums(
            self.gram.sum(0, keepdim=True).expand_as(self.gram),
            self.right.sum(0, keepdim=True).expand_as(self.right),
        )

    def restricted(self, basis: Tensor) -> Sums:
        """The same problem for parameters of the form `basis` (K, k) times fewer parameters."""
        return Sums(basis.T @ self.gram @ basis, basis.T @ self.right)

    def solve(self, prior: Tensor, ridge: float) -> Tensor:
        """The best parameters (owners, K, T), drawn towards `prior` by `ridge` times their own weight."""
        weight = torch.diagonal(self.gram, dim1=-2, dim2=-1)
        pull = torch.diag_embed(ridge * weight + FLOOR * weight.mean(-1, keepdim=True) + FLOOR**2)
        return torch.linalg.solve(self.gram + pull, self.right + pull @ prior)

    def misfit(self, solution: Tensor) -> Tensor:
        """How far each owner's solution is from its target (owners, T), up to a constant."""
        return (solution * (self.gram @ solution - 2 * self.right)).sum(-2)


def power_sums(x: Tensor, y: Tensor, weight: Tensor, powers: Sequence[int]) -> Sums:
    """Sums for one polynomial per channel; x and y are (..., channels), `weight` broadcasts against them."""
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    term = weight.reshape(-1, weight.shape[-1]).expand_as(x)
    of_x, of_xy = [], []
    for _ in range(2 * max(powers) + 1):
        of_x.append(term.sum(0, dtype=torch.float64))
        of_xy.append((term * y).sum(0, dtype=torch.float64))
        term = term * x
    gram = torch.stack([torch.stack([of_x[a + b] for b in powers], -1) for a in powers], -2)
    return Sums(gram, torch.stack([of_xy[a] for a in powers], -1).unsqueeze(-1))


def attention_sums(
    scores: Tensor, values: Tensor, target: Tensor, weight: Tensor, powers: Sequence[int]
) -> Sums:
    """Sums for one polynomial per head, so that its weights times the values come near `target`.

    Scores are (B, H, N, N), values and target (B, H, N, D), `weight` (B, H, N): one per row.
    """
    terms = {0: values.sum(-2, keepdim=True).expand_as(values), 1: scores @ values}
    if max(powers) > 1:
        terms[2] = scores.square() @ values
    features = torch.stack([terms[p] for p in powers], -1)  # (B, H, N, D, K)
    heads = features.shape[1]
    features = features.transpose(0, 1).reshape(heads, -1, len(powers))
    rows = weight.unsqueeze(-1).expand_as(target).transpose(0, 1).reshape(heads, -1, 1)
    weighted = (features * rows).double().transpose(-2, -1)
    goal = target.transpose(0, 1).reshape(heads, -1, 1)
    return Sums(weighted @ features.double(), weighted @ goal.double())


def static_sums(values: Tensor, target: Tensor) -> Sums:
    """Sums for weights of their own for every row, which take values to `target`, both (B, H, N, D).

    A head is an owner, a key a feature and a row a target: what a row counts changes none of its weights.
    """
    keys = values.permute(1, 2, 0, 3).flatten(2).double()  # (H, N, B D)
    rows = target.permute(1, 2, 0, 3).flatten(2).double()
    return Sums(keys @ keys.mT, keys @ rows.mT)


def linear_sums(features: Tensor, target: Tensor, weight: Tensor) -> Sums:
    """Sums for one linear layer with bias: features (n, K), target (n, T), weight (n,)."""
    # The products are made in single precision, a batch at a time, and added up in double.
    ones = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
    weighted = (ones * weight.unsqueeze(-1)).T
    return Sums((weighted @ ones).double().unsqueeze(0), (weighted @ target).double().unsqueeze(0))


def bounded_quadratic(sums: Sums, prior: Tensor, ridge: float, bound: float) -> Tensor:
    """The best quadratics (owners, 3) whose vertex stays within |q1 / (2 q2)| <= bound.

    The folded program computes q2 (x + h)^2 + k with h = q1 / (2 q2), so that a tiny q2 would make h and k
    huge and cancel. Where the free solution breaks the bound, the best one on it is taken: there
    q1 = +-2 bound q2, which leaves two parameters. Both signs are solved and the nearer to the target wins.
    """
    free = sums.solve(prior, ridge)
    best, misfit = None, None
    for sign in (1.0, -1.0):
        basis = torch.tensor([[1.0, 0.0], [2 * bound * sign, 0.0], [0.0, 1.0]], dtype=free.dtype)
        start = torch.stack([prior[:, 1] / (2 * bound * sign), prior[:, 2]], dim=1)
        candidate = basis @ sums.restricted(basis).solve(start, ridge)
        own = sums.misfit(candidate)
        if best is None or misfit is None:
            best, misfit = candidate, own
        else:
            better = own < misfit
            best = torch.where(better.unsqueeze(-2), candidate, best)
    assert best is not None
    breaks = free[:, 1].abs() > 2 * bound * free[:, 0].abs()
    return torch.where(breaks.unsqueeze(-2), best, free).squeeze(-1)
