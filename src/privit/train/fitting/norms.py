"""The scalars of replaced LayerNorms, by least squares.

A token x of mean zero should be multiplied with 1 / sigma, and is with a combination of what the operator
has: the factor passed on, the variance, one. What counts is how far the normalised token moves, so a
token's error counts by its variance.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from privit.operators import Operator
from privit.train.fitting.moments import Sums
from privit.train.student.norms import NormSites, Stream


def norm_sums(
    sites: NormSites, place: int, entry: Operator, stream: Stream, weight: Tensor, one: bool | None = None
) -> Sums:
    """Sums for one site, or one for each class of tokens; `weight` (b, N) says how much each token counts.

    `one` is given for the last LayerNorm: whether it reads the class token alone, or patches alone.
    """
    variance = stream.tokens.var(dim=-1, correction=0).double()  # (b, N)
    carried = torch.zeros_like(variance) if stream.factor is None else stream.factor.squeeze(-1)
    ones = torch.ones_like(variance)
    terms = {"reused": [carried], "linear": [variance, ones], "constant": [ones]}[entry.family]
    features = torch.stack([term.double() for term in terms], dim=-1)  # (b, N, K)
    target = (variance + sites.eps).rsqrt()
    own = _stands(sites, place, entry, variance.shape[1], one).double()
    counted = own * (weight * variance)  # (owners, b, N)
    weighted = counted.unsqueeze(-1) * features
    gram = torch.einsum("obnk,bnl->okl", weighted, features)
    return Sums(gram, torch.einsum("obnk,bn->ok", weighted, target).unsqueeze(-1))


def _stands(sites: NormSites, place: int, entry: Operator, tokens: int, one: bool | None) -> Tensor:
    """For each site of a place, which tokens are its own and run this operator (owners, 1, tokens)."""
    owners = sites.shape[1] if len(sites.shape) == 2 else 1
    here = np.ones(owners, bool) if sites.ids is None else np.atleast_1d(sites.ids[place] == entry.id)
    rows = torch.ones(owners, 1, tokens)
    if owners == 2:
        rows[0, :, 1:] = 0 if one is None else float(one)
        rows[1, :, :1] = 0 if one is None else float(not one)
        if one is not None:
            rows[0 if not one else 1] = 0
    return rows * torch.from_numpy(here.astype(np.float32)).reshape(-1, 1, 1)


def set_norm(sites: NormSites, place: int, entry: Operator, sums: Sums, ridge: float) -> None:
    """Solves the sums and fills the operator's scalars in, where it stands and has seen a token."""
    names = list(entry.parameters)
    prior = torch.tensor([entry.initial[name] for name in names], dtype=torch.float64).reshape(1, -1, 1)
    solution = sums.solve(prior.expand(len(sums.gram), -1, 1), ridge).squeeze(-1)  # (owners, K)
    seen = torch.diagonal(sums.gram, dim1=-2, dim2=-1).sum(-1) > 0
    held = getattr(sites, entry.name)
    for name, column in zip(names, solution.unbind(-1), strict=True):
        value = held[name][place]
        value.copy_(torch.where(seen, column.float(), value.reshape(-1)).reshape(value.shape))
