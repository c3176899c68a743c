"""Fronts, compared as fronts: at each point of the other, the best of ours that costs no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from privit.report.read.cells import Point, Spread, spread

SAME_COST = 0.02
"""Plans of one budget differ a little in bytes; a point this much dearer still counts as no dearer."""


def front(points: Iterable[Point], axis: str) -> list[Point]:
    """The points that no other one beats: none is both at least as accurate and cheaper; cheapest first."""
    priced = [(cost.mean, -p.accuracy.mean, i, p) for i, p in enumerate(points) if (cost := p.cost(axis))]
    best: list[Point] = []
    for _, _, _, point in sorted(priced, key=lambda entry: entry[:3]):
        if not best or point.accuracy.mean > best[-1].accuracy.mean:
            best.append(point)
    return best


@dataclass(frozen=True)
class Lead:
    """How far `ours` is ahead of `theirs` in accuracy, paired by seed where seeds are shared.

    `cost_ratio` is what ours costs for each unit of theirs.
    """

    theirs: Point
    ours: Point
    difference: Spread
    by_seed: tuple[float, ...]
    cost_ratio: float

    @property
    def verdict(self) -> str:
        """ahead or behind where every seed says so, otherwise level."""
        if self.by_seed and all(d > 0 for d in self.by_seed):
            return "ahead"
        if self.by_seed and all(d < 0 for d in self.by_seed):
            return "behind"
        return "level"


def best_within(points: Iterable[Point], axis: str, cost: float) -> Point | None:
    """The most accurate point that costs no more (within `SAME_COST`), or None."""
    affordable = [p for p in points if (c := p.cost(axis)) and c.mean <= cost * (1 + SAME_COST)]
    return max(affordable, key=lambda p: p.accuracy.mean, default=None)


def cheapest_as_good(points: Iterable[Point], other: Point, axis: str) -> Point | None:
    """The cheapest point that is as accurate as another one, within that one's deviation; or None."""
    least = other.accuracy.mean - other.accuracy.deviation
    good = [(c.mean, i, p) for i, p in enumerate(points) if (c := p.cost(axis)) and p.accuracy.mean >= least]
    return min(good, key=lambda entry: entry[:2])[2] if good else None


def lead(theirs: Point, ours: Point, axis: str) -> Lead:
    """The lead of one point over another."""
    first = {cell.seed: cell.accuracy for cell in ours.cells}
    second = {cell.seed: cell.accuracy for cell in theirs.cells}
    shared = sorted(first.keys() & second.keys())
    by_seed = tuple(first[seed] - second[seed] for seed in shared)
    if not by_seed:
        by_seed = (ours.accuracy.mean - theirs.accuracy.mean,)
    mine, other = ours.cost(axis), theirs.cost(axis)
    ratio = mine.mean / other.mean if mine and other and other.mean else float("nan")
    return Lead(theirs, ours, spread(by_seed), by_seed, ratio)


def leads(ours: Sequence[Point], theirs: Sequence[Point], axis: str) -> tuple[list[Lead], list[Point]]:
    """Our lead at every point of their front, and the points that are cheaper than anything of ours."""
    found, cheaper = [], []
    for point in front(theirs, axis):
        cost = point.cost(axis)
        assert cost is not None
        mine = best_within(ours, axis, cost.mean)
        if mine is None:
            cheaper.append(point)
        else:
            found.append(lead(point, mine, axis))
    return found, cheaper


def leads_at_equal_gelus(ours: Sequence[Point], theirs: Sequence[Point], axis: str) -> list[Lead]:
    """Our lead over each point that keeps as many GELUs: our best one with as many."""

    def kept(point: Point) -> float:
        return point.kept("gelu").mean

    found = []
    for point in theirs:
        same = [p for p in ours if abs(kept(p) - kept(point)) <= SAME_COST * max(kept(point), 1)]
        if same:
            found.append(lead(point, max(same, key=lambda p: p.accuracy.mean), axis))
    return found
