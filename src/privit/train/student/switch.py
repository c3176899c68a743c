"""Switches: the learnable weight of a site, and what runs once the weight is gone.

While a kind is searched, a site gives c exact(x) + (1 - c) stand_in(x). Once it is frozen, each site runs
its one operator: sites are grouped by operator, and nothing is computed that a plan does not ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from privit.operators import BY_ID, Operator, operator
from privit.spec import GeluVariant, Shape
from privit.train.student.activations import FUNCTIONS
from privit.train.student.autograd import Branch, MixGeluIdentity, MixRecomputed, MixSoftmaxSquared, Reorder


class Sites(nn.Module):
    """The sites of one kind in one layer.

    Values have the batch first, then the axes of the sites, then the rest: hidden values are
    (B, N, mlp_width), scores (B, heads, N, N), and a site array of k axes lines up with axes 1 to k.
    `setting` is what the kind's functions take last: the GELU variant or the number of tokens.
    """

    switch: nn.Parameter | None
    order: Tensor | None
    inverse: Tensor | None

    def __init__(
        self,
        kind: str,
        shape: Shape,
        owners: int,
        setting: GeluVariant | int,
        exact: str,
        stand_in: str,
    ):
        super().__init__()
        self.kind, self.shape, self.owners, self.setting = kind, shape, owners, setting
        self.exact, self.stand_in = operator(exact, kind), operator(stand_in, kind)
        self.switch = nn.Parameter(torch.ones(shape))
        self.ids: np.ndarray | None = None
        self.groups: list[tuple[Operator, int]] = []
        self.register_buffer("order", None, persistent=False)
        self.register_buffer("inverse", None, persistent=False)
        self._hold_parameters([self.exact, self.stand_in])

    @property
    def frozen(self) -> bool:
        """Whether the sites run by plan."""
        return self.ids is not None

    @property
    def only(self) -> str | None:
        """The name of the one operator that stands at every site, if there is one."""
        return self.groups[0][0].name if len(self.groups) == 1 else None

    def current_ids(self, threshold: float) -> np.ndarray:
        """The operator ids as frozen, or as cutting the switches at `threshold` would give."""
        if self.switch is None:
            assert self.ids is not None
            return self.ids
        return self.ids_where(self.switch.detach().cpu().numpy() > threshold)

    def ids_where(self, kept: np.ndarray) -> np.ndarray:
        """Operator ids: the exact operator where `kept`, the stand-in elsewhere."""
        return np.where(kept, self.exact.id, self.stand_in.id).astype(np.uint8)

    def freeze(self, ids: np.ndarray) -> None:
        """Runs these operators from now on; the switch stops being a parameter.

        What is new is made on the CPU: whoever holds the sites moves them where they belong.
        """
        self.ids = np.array(ids, dtype=np.uint8)
        flat = self.ids.reshape(-1)
        present, counts = np.unique(flat, return_counts=True)
        self.groups = [(BY_ID[int(i)], int(n)) for i, n in zip(present, counts, strict=True)]
        self.switch = None
        self.order = self.inverse = None
        if len(self.groups) > 1:
            order = np.argsort(flat, kind="stable")
            inverse = np.empty_like(order)
            inverse[order] = np.arange(order.size)
            self.order = torch.from_numpy(order)
            self.inverse = torch.from_numpy(inverse)
        self._hold_parameters([entry for entry, _ in self.groups])

    @torch.no_grad()
    def clamp_(self) -> None:
        """Keeps the switches within [0, 1]."""
        if self.switch is not None:
            self.switch.clamp_(0, 1)

    def set_stand_in(self, entry: Operator) -> None:
        """Mixes another operator in from now on, with initial parameters; only while there is a switch."""
        assert self.switch is not None
        self.stand_in = entry
        self._hold_parameters([self.exact, entry])

    def forward(self, values: Tensor) -> Tensor:
        """What stands at the sites, applied to the values."""
        if self.switch is not None:
            return self._mix(values)
        if self.order is None:
            return self._run(self.groups[0][0], values)
        flat = values.flatten(1, len(self.shape))
        return self._by_group(flat, self._run_group).view_as(values)

    def between(self, before: nn.Module, x: Tensor, after: nn.Module) -> Tensor:
        """after(sites(before(x))) for layers that treat each entry of axis 1 on its own.

        Frozen sites along that axis are grouped before the first layer, where rows are narrow.
        """
        if self.order is None or len(self.shape) != 1:
            return after(self(before(x)))
        return self._by_group(x, lambda entry, piece, _: after(self._run(entry, before(piece))))

    def _by_group(self, flat: Tensor, run: Callable[[Operator, Tensor, Tensor], Tensor]) -> Tensor:
        assert self.order is not None
        assert self.inverse is not None
        sizes = [count for _, count in self.groups]
        pieces = Reorder.apply(flat, self.order, self.inverse).split(sizes, dim=1)
        places = self.order.split(sizes)
        results = [
            run(entry, piece, place)
            for (entry, _), piece, place in zip(self.groups, pieces, places, strict=True)
        ]
        return Reorder.apply(torch.cat(results, dim=1), self.inverse, self.order)

    def _run(self, entry: Operator, values: Tensor) -> Tensor:
        parameters = {name: self._spread(p, values) for name, p in self._parameters_of(entry).items()}
        return FUNCTIONS[entry.name](values, parameters, self.setting)

    def _spread(self, parameter: Tensor, values: Tensor) -> Tensor:
        """Parameters shaped to broadcast against ungrouped values."""
        if parameter.dim() > 1:
            return parameter.to(values.dtype)  # (heads, N, N)
        axes = (1,) * (0 if self.kind == "gelu" else values.dim() - 2)
        return parameter.reshape(-1, *axes).to(values.dtype)

    def _run_group(self, entry: Operator, piece: Tensor, places: Tensor) -> Tensor:
        """One operator on (B, sites of this operator, ...); `places` are their flat indices."""
        if self.kind == "gelu" and len(self.shape) == 1:
            return self._run(entry, piece)
        # The owner of a parameter is the channel, the last axis of the sites, or the head, the first.
        owner = places % self.owners if self.kind == "gelu" else places // (self.shape[1:] or (1,))[0]
        axes = (1,) * (piece.dim() - 2)
        parameters = {
            name: p.flatten(0, len(self.shape) - 1).index_select(0, places).to(piece.dtype)
            if p.dim() > 1
            else p.index_select(0, owner).reshape(-1, *axes).to(piece.dtype)
            for name, p in self._parameters_of(entry).items()
        }
        return FUNCTIONS[entry.name](piece, parameters, self.setting)

    def _mix(self, values: Tensor) -> Tensor:
        assert self.switch is not None
        c = self.switch.reshape(self.shape + (1,) * (values.dim() - 1 - len(self.shape)))
        pair = (self.exact.name, self.stand_in.name)
        if pair == ("gelu", "identity"):
            return MixGeluIdentity.apply(values, c, "tanh" if self.setting == "tanh" else "none")
        if pair == ("softmax", "squared_attn"):
            return MixSoftmaxSquared.apply(values, c, self.setting)
        tensors = {
            (entry.name, name): self._spread(parameter, values)
            for entry in (self.exact, self.stand_in)
            for name, parameter in self._parameters_of(entry).items()
        }
        branches = [_branch(entry, list(tensors), self.setting) for entry in (self.exact, self.stand_in)]
        return MixRecomputed.apply(*branches, values, c, *tensors.values())

    def _parameters_of(self, entry: Operator) -> dict[str, Tensor]:
        held = getattr(self, entry.name) if entry.parameters else {}
        return dict(held.items())

    def _hold_parameters(self, entries: Iterable[Operator]) -> None:
        """Keeps, adds or drops parameters so that exactly those of `entries` are held."""
        wanted = {entry.name: entry for entry in entries if entry.parameters}
        for name in [name for name, _ in self.named_children() if name not in wanted]:
            delattr(self, name)
        # Attention weights are of the order of 1 / N (operators.py).
        scale = 1.0 / self.setting if isinstance(self.setting, int) else 1.0
        for name, entry in wanted.items():
            if not hasattr(self, name):
                shapes: dict[str, Shape] = {"site": self.shape}
                if isinstance(self.setting, int):
                    shapes["pair"] = (self.owners, self.setting, self.setting)
                values = {
                    p: torch.full(shapes.get(per, (self.owners,)), entry.initial[p] * scale)
                    for p, per in entry.parameters.items()
                }
                self.add_module(name, nn.ParameterDict(values))


def _branch(entry: Operator, keys: list[tuple[str, str]], setting: GeluVariant | int) -> Branch:
    """The operator as a function of the values and of the parameters that `keys` name, in that order."""

    def run(values: Tensor, *tensors: Tensor) -> Tensor:
        named = zip(keys, tensors, strict=True)
        parameters = {name: tensor for (owner, name), tensor in named if owner == entry.name}
        return FUNCTIONS[entry.name](values, parameters, setting)

    return run
