"""The plans a ladder is made of: many chains of them, and the best path through all.

A chain alone leaves gaps where a layer's fixed charge falls due. So many chains are made, each with other
kinds or layers first; gaps that are left are filled with plans a few steps away; and the path is the one
that avoids the most loss over all budgets, on which cost, loss avoided and exact sites never fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

WITHIN = 0.05
"""How far below its budget a plan may stay."""
COMFORTABLE = 0.03
"""Steps up to this width are taken freely; wider ones only where there is no other way."""
WIDE, TOO_WIDE = 30.0, 1e4
"""What a step costs a path for each part that it is wider than comfortable, and than allowed."""
TILTS = (1.0, 0.03, 30.0, 0.2, 5.0)
SHUFFLES = 12
REPAIRS, TRIES = 3, 300
REACH = 0.3
"""A path looks so far back for the plan before; farther only where nothing nearer will do."""
BIN, PER_BIN = 0.004, 8


@dataclass(frozen=True)
class Rung:
    """A plan: how many steps each group has taken, and what that costs, avoids and keeps."""

    states: tuple[int, ...]
    cost: float
    avoided: float
    kept: int


@dataclass(frozen=True)
class Board:
    """For each group, one entry per state: cost vector, loss avoided, exact sites; and worth of each step.

    `worth` has a row per step, to a stand-in or to the exact operator (`exact` says which); `free` is the
    last state that costs no more than each; `kinds` names each group's kind; `rest` is the cost of what no
    plan changes, and `value` reads a sum of cost vectors.
    """

    vectors: list[np.ndarray]
    avoided: list[np.ndarray]
    kept: list[np.ndarray]
    worth: list[np.ndarray]
    exact: list[np.ndarray]
    kinds: np.ndarray
    free: list[np.ndarray]
    rest: np.ndarray
    value: Callable[[np.ndarray], float]

    def risen(self, states: tuple[int, ...]) -> tuple[int, ...]:
        """The same plan with every step taken that costs nothing more."""
        return tuple(int(free[s]) for free, s in zip(self.free, states, strict=True))

    def rung(self, states: tuple[int, ...]) -> Rung:
        """The plan in which each group has taken so many steps."""
        total = self.rest + np.sum([v[s] for v, s in zip(self.vectors, states, strict=True)], axis=0)
        avoided = sum(float(a[s]) for a, s in zip(self.avoided, states, strict=True))
        kept = sum(int(k[s]) for k, s in zip(self.kept, states, strict=True))
        return Rung(states, self.value(total), avoided, kept)


def best_path(board: Board, thorough: bool = True) -> list[Rung]:
    """Plans from the cheapest to the best, the steps between them no wider than needed.

    Without being `thorough` it is the plain chain by loss saved per cost, with the gaps that this has.
    """
    known: set[tuple[int, ...]] = set()
    if not thorough:
        plain = _chain(board, np.ones((len(board.kinds), 2)))
        return _path(_new(board, known, map(board.risen, plain)))
    chains = (board.risen(states) for tilt in _tilts(board) for states in _chain(board, tilt))
    found = _new(board, known, chains)
    path = _path(found)
    draw = np.random.default_rng(0)
    for _ in range(REPAIRS):
        gaps = [(low, high) for low, high in pairwise(path) if low.cost < (1 - COMFORTABLE) * high.cost]
        if not gaps:
            break
        for low, high in gaps:
            near = _new(board, known, _near(board, path, low, high, draw))
            found += [rung for rung in near if low.cost < rung.cost < high.cost]
        path = _path(found)
    return path


def _new(board: Board, known: set[tuple[int, ...]], asked: Iterable[tuple[int, ...]]) -> list[Rung]:
    found = []
    for states in asked:
        if states not in known:
            known.add(states)
            found.append(board.rung(states))
    return found


def _tilts(board: Board) -> list[np.ndarray]:
    """Weights (groups, 2) of steps to a stand-in and to the exact operator; the first is all ones."""
    softmax, norm = board.kinds == "softmax", board.kinds == "norm"
    found = [
        np.stack([np.where(softmax, kind * early, early), np.where(softmax, kind, 1.0)], axis=1)
        for early, kind in product((1.0, 0.01, 100.0), TILTS)
    ]
    if any(board.worth[index].size for index in np.flatnonzero(norm)):
        found += [np.where(norm, tilt, 1.0)[:, None] * np.ones(2) for tilt in TILTS[1:]]
    draw = np.random.default_rng(0)
    groups = len(board.kinds)
    return found + [np.exp(draw.normal(0, 2, size=(groups, 1))) * np.ones(2) for _ in range(SHUFFLES)]


def _chain(board: Board, tilt: np.ndarray) -> Iterator[tuple[int, ...]]:
    """From the first state of all groups to the last, step by step, by tilted worth."""
    entries = []
    for index, (worth, exact) in enumerate(zip(board.worth, board.exact, strict=True)):
        tilted = tilt[index][exact.astype(int)] * worth
        # A step cannot come before the one it builds on.
        lowest = np.minimum.accumulate(tilted) if tilted.size else tilted
        entries += [(-float(w), index, position) for position, w in enumerate(lowest)]
    states = [0] * len(board.kinds)
    yield tuple(states)
    for _, index, _ in sorted(entries):
        states[index] += 1
        yield tuple(states)


def _near(
    board: Board, path: list[Rung], low: Rung, high: Rung, draw: np.random.Generator
) -> Iterator[tuple[int, ...]]:
    """Plans around a gap: one group farther than below it, one less far than above, and a few at random."""
    ends = [len(w) for w in board.worth]
    for index, end in enumerate(ends):
        for state in range(low.states[index] + 1, end + 1):
            yield (*low.states[:index], state, *low.states[index + 1 :])
        for state in range(high.states[index]):
            yield (*high.states[:index], state, *high.states[index + 1 :])
    below = [rung for rung in path if (1 - 4 * WITHIN) * low.cost <= rung.cost <= low.cost]
    for _ in range(TRIES):
        states = list(below[int(draw.integers(len(below)))].states)
        for index in draw.choice(len(ends), size=min(int(draw.integers(2, 5)), len(ends)), replace=False):
            states[index] = int(draw.integers(states[index], ends[index] + 1))
        yield tuple(states)


def _path(candidates: list[Rung]) -> list[Rung]:
    ordered = _thinned(sorted(candidates, key=lambda r: (r.cost, r.avoided, r.kept)))
    cost = np.log(np.maximum([r.cost for r in ordered], 1e-12))
    avoided, kept = np.array([r.avoided for r in ordered]), np.array([r.kept for r in ordered])
    value = avoided / max(float(avoided.max()), 1e-300)
    best, before = np.full(len(ordered), -np.inf), np.full(len(ordered), -1)
    best[0] = 0.0
    for v in range(1, len(ordered)):
        for start in (int(np.searchsorted(cost, cost[v] - REACH)), 0):
            past = slice(start, v)
            allowed = (avoided[past] <= avoided[v]) & (kept[past] <= kept[v]) & np.isfinite(best[past])
            if allowed.any():
                gained = np.where(allowed, best[past] + _gain(value[past], cost[v] - cost[past]), -np.inf)
                u = int(np.argmax(gained))
                best[v], before[v] = gained[u], start + u
                break
    end = int(np.lexsort((-cost, kept, avoided))[-1])
    path = []
    while end >= 0:
        path.append(ordered[end])
        end = int(before[end])
    return path[::-1]


def _gain(value: np.ndarray, width: np.ndarray) -> np.ndarray:
    """What a step is worth to a path: the loss avoided for all budgets up to it, if it is not too wide."""
    wide = np.maximum(width + np.log1p(-COMFORTABLE), 0)
    too_wide = np.maximum(width + np.log1p(-WITHIN), 0)
    return value * width - WIDE * wide**2 - TOO_WIDE * too_wide


def _thinned(ordered: list[Rung]) -> list[Rung]:
    """Of many plans of nearly one cost, those that avoid the most; the first and the best stay."""
    last = max(ordered, key=lambda r: (r.avoided, r.kept, -r.cost))
    bins: dict[int, list[Rung]] = {}
    for rung in ordered[1:]:
        bins.setdefault(int(np.log(max(rung.cost, 1e-12)) / BIN), []).append(rung)
    kept = {ordered[0].states, last.states}
    for rungs in bins.values():
        kept |= {r.states for r in sorted(rungs, key=lambda r: -r.avoided)[:PER_BIN]}
    return [rung for rung in ordered if rung.states in kept]
