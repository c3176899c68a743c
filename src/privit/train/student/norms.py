"""LayerNorm with sites: a factor of its own, one that an earlier LayerNorm computed, or a constant.

Tokens pass with the factor that LayerNorms before multiplied them with (`Stream.factor`); a reused one takes
it times a scalar. A constant one passes it by. Read side by side with `serve/model/norms.py`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from privit.operators import BY_ID, Operator
from privit.spec import Shape
from privit.train.student.activations import FUNCTIONS
from privit.train.student.switch import Sites

Rows = Literal["all", "class", "patches"]


class Stream(NamedTuple):
    """Tokens (B, N, width) on their way, and what the LayerNorm before multiplied each with (B, N, 1)."""

    tokens: Tensor
    factor: Tensor | None = None


class NormSites(Sites):
    """The LayerNorms of one layer: places (2 or 3,), or those by class token and patches (places, 2)."""

    def __init__(self, shape: Shape, first: bool, class_token: bool, eps: float, exact: str, stand_in: str):
        super().__init__("norm", shape, 1, "", exact, stand_in)  # type: ignore[arg-type]
        self.first, self.class_token, self.eps = first, class_token, eps

    def ids_where(self, kept: np.ndarray) -> np.ndarray:
        """Operator ids: the exact operator where `kept`; also where nothing could be reused."""
        ids = super().ids_where(kept)
        if self.first and self.stand_in.family == "reused":
            ids[0] = self.exact.id
        return ids

    @torch.no_grad()
    def clamp_(self) -> None:
        """Keeps the switches within [0, 1]; that of a first LayerNorm, which has nothing to reuse, at 1."""
        super().clamp_()
        if self.switch is not None and self.first and self.stand_in.family == "reused":
            self.switch[0] = 1.0

    @property
    def plain(self) -> bool:
        """Whether every LayerNorm here is exact for good."""
        return self.frozen and self.only == "layer_norm"

    def factor(
        self, place: int, variance: Tensor, carried: Tensor | None, rows: Rows = "all"
    ) -> tuple[Tensor, Tensor | None]:
        """What tokens of that variance (B, N, 1) are multiplied with, and what goes on to the next LayerNorm.

        `carried` is what the LayerNorm before passed on; `rows` says which tokens these are.
        """
        if len(self.shape) == 1:
            return self._row(place, (place,), variance, carried)
        apart = self.class_token and rows == "all"
        cuts = [1, variance.shape[1] - 1] if apart else [variance.shape[1]]
        which = [0, 1] if apart else [0 if rows == "class" else self.shape[1] - 1]
        pieces = variance.split(cuts, dim=1)
        before = [None] * len(cuts) if carried is None else carried.split(cuts, dim=1)
        found = [
            self._row(place, (place, row), piece, passed)
            for row, piece, passed in zip(which, pieces, before, strict=True)
        ]
        factors, passed_on = zip(*found, strict=True)
        kept = [
            torch.zeros_like(piece) if passed is None else passed
            for piece, passed in zip(pieces, passed_on, strict=True)
        ]
        nothing = all(passed is None for passed in passed_on)
        return torch.cat(factors, dim=1), None if nothing else torch.cat(kept, dim=1)

    def _row(
        self, place: int, site: tuple[int, ...], variance: Tensor, carried: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if self.switch is None:
            assert self.ids is not None
            entry = BY_ID[int(self.ids[site])]
            factor = self._function(entry, site, variance, carried)
            return factor, carried if entry.family == "constant" else factor
        own = self._function(self.exact, site, variance, carried)
        if self.first and place == 0 and self.stand_in.family == "reused":
            return own, own
        c = self.switch[site]
        stand_in = self._function(self.stand_in, site, variance, carried)
        passed = carried if self.stand_in.family == "constant" else stand_in
        return torch.lerp(stand_in, own, c), own if passed is None else torch.lerp(passed, own, c)

    def _function(
        self, entry: Operator, site: tuple[int, ...], variance: Tensor, carried: Tensor | None
    ) -> Tensor:
        parameters = {name: parameter[site] for name, parameter in self._parameters_of(entry).items()}
        return FUNCTIONS[entry.name](variance, parameters=parameters, carried=carried, eps=self.eps)


def normalise(
    layer: nn.LayerNorm, sites: NormSites, place: int, stream: Stream, plain: bool, rows: Rows = "all"
) -> tuple[Tensor, Stream]:
    """Normalised tokens, and the stream with the factor that goes on; `plain`: no factor is ever reused."""
    if plain:
        return layer(stream.tokens), stream
    centred = stream.tokens - stream.tokens.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    factor, passed = sites.factor(place, variance, stream.factor, rows)
    return centred * factor * layer.weight + layer.bias, Stream(stream.tokens, passed)


def mix_patches(matrix: Tensor, x: Tensor, first: int) -> Tensor:
    """Patches (B, N, ...) from `first` on mixed by a matrix (M, N - first); what stands before stays."""
    mixed = torch.einsum("mn,bnd->bmd", matrix.to(x.dtype), x[:, first:])
    return torch.cat([x[:, :first], mixed], dim=1) if first else mixed


def averaging(before: int, after: int) -> Tensor:
    """The matrix (after, before) that averages neighbouring patches, on a square grid if both numbers are."""
    sides = [round(n**0.5) for n in (before, after)]
    if [side**2 for side in sides] == [before, after]:
        one = _windows(*sides)
        return torch.kron(one, one)
    return _windows(before, after)


def _windows(before: int, after: int) -> Tensor:
    rows = torch.arange(after).unsqueeze(1)
    start = rows * before // after
    stop = -((rows + 1) * before // -after)
    places = torch.arange(before).unsqueeze(0)
    inside = ((places >= start) & (places < stop)).float()
    return inside / inside.sum(dim=1, keepdim=True)
