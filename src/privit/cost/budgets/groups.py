"""One layer's sites of one kind, from all cheap to all exact: what to raise first, by loss saved per cost.

Rounds and bytes have a fixed charge for every layer that uses an operator at all, so sites are raised in
batches: of all batches (a few of the best sites, a head's, all of them; to a fitted stand-in or to the exact
operator) the one that saves the most loss per cost comes next, its fixed charge included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

MOVES = 10
"""At least that share of a group's sites is raised at once: finer moves save no more."""
PIECES = 6
"""A move of many sites is cut into so many steps, so that a budget can be spent to the last percent."""
UNREAD = 1e-9
"""Sites that save less than this share of their group's largest saving are not read by anyone."""

CellCost = Callable[[np.ndarray], float]
"""The cost of a group whose sites stand at these levels."""


@dataclass(frozen=True)
class Group:
    """The sites of one kind in one layer; `losses` (levels, sites) falls from cheapest to exact.

    `heads` says which head each site belongs to: zeros where there are none. `may` says which sites may
    become exact, where not all may; `least` the level below which a site cannot go, where there is one.
    """

    kind: str
    layer: int
    losses: np.ndarray
    heads: np.ndarray
    may: np.ndarray | None = None
    least: np.ndarray | None = None

    @property
    def start(self) -> np.ndarray:
        """The levels of all sites where nothing is spent on them."""
        return np.zeros(self.losses.shape[1], np.int64) if self.least is None else self.least.copy()

    @property
    def top(self) -> int:
        """The exact operator's level."""
        return len(self.losses) - 1

    def loss(self, levels: np.ndarray) -> float:
        """What replacing sites down to these levels costs."""
        return float(np.take_along_axis(self.losses, levels[None], axis=0).sum())


@dataclass(frozen=True)
class Step:
    """A group's next state: its sites' levels, and how much loss per cost its move saves."""

    levels: np.ndarray
    worth: float
    target: int


def steps(group: Group, cost: CellCost, scale: float) -> list[Step]:
    """The states of a group on its way up, in order; nothing is ever lowered.

    `scale` is a cost too small to matter: a batch that costs less counts as costing that much.
    """
    levels = group.start
    here = cost(levels)
    found: list[Step] = []
    while True:
        options = [
            (batch, target, _saved(group, levels, batch, target)) for batch, target in _batches(group, levels)
        ]
        if not options:
            return found
        costs = [cost(_raised(levels, batch, target)) for batch, target, _ in options]
        worths = [saved / max(c - here, scale) for c, (_, _, saved) in zip(costs, options, strict=True)]
        best = int(np.argmax(worths))
        batch, target, _ = options[best]
        for piece in _pieces(batch):
            levels = _raised(levels, piece, target)
            found.append(Step(levels, worths[best], target))
        here = costs[best]


def _batches(group: Group, levels: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Sites that could be raised next, and to which level; the largest savings come first."""
    for target in range(1, group.top + 1):
        open_sites = np.flatnonzero(levels < target)
        if target == group.top and group.may is not None:
            open_sites = open_sites[group.may[open_sites]]
        saved = group.losses[levels[open_sites], open_sites] - group.losses[target, open_sites]
        useful = saved > UNREAD * float(group.losses[0].max(initial=0.0))
        open_sites, saved = open_sites[useful], saved[useful]
        if not open_sites.size:
            continue
        order = open_sites[np.argsort(-saved, kind="stable")]
        least = -(-levels.size // MOVES)
        sizes = {min(least * times, order.size) for times in (1, 4)} | {order.size}
        for size in sorted(sizes):
            yield order[:size], target
        heads = np.unique(group.heads[order])
        if len(heads) > 1:
            for head in heads:
                yield order[group.heads[order] == head], target


def _saved(group: Group, levels: np.ndarray, batch: np.ndarray, target: int) -> float:
    return float((group.losses[levels[batch], batch] - group.losses[target, batch]).sum())


def _raised(levels: np.ndarray, batch: np.ndarray, target: int) -> np.ndarray:
    raised = levels.copy()
    raised[batch] = target
    return raised


def _pieces(batch: np.ndarray) -> list[np.ndarray]:
    return [piece for piece in np.array_split(batch, min(PIECES, batch.size)) if piece.size]


def falling(losses: np.ndarray) -> np.ndarray:
    """Losses (levels, sites) that never rise with the level, and are zero at the exact one."""
    fallen = np.minimum.accumulate(np.maximum(losses, 0.0), axis=0)
    fallen[-1] = 0.0
    return fallen
