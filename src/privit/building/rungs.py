"""Which plans to fine-tune for an accuracy: the cheapest that is good enough, with few trainings.

The ladder's plans stand in a row, the cheapest first. Fitted and untrained, each is a known number of points
below the teacher, and training makes up for a share of that: about 0.6 on DeiT-Tiny (docs/fitted.md). So the
first try is the cheapest plan that is foreseen to be good enough; what it ends with corrects the share, and
the row is halved like that until a plan is good enough and the next cheaper one is not, or hopeless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

RUNGS = 9
LEFT = 0.4
"""What training leaves of the points that a fitted student lacks, until the first try says otherwise."""
LEAST_LEFT, MOST_LEFT = 0.05, 1.0
HOPELESS = 2.0
"""A plan that is foreseen to lose so many times what it may is not tried while a good one is known."""
FINE = 0.25
"""Points below which a difference says nothing about what training makes up for."""


def rung_costs(floor: float, ceiling: float, count: int = RUNGS) -> list[float]:
    """Amounts from the cheapest plan's to the untouched model's in equal ratios, the cheapest first."""
    ceiling = max(floor, ceiling)
    step = (ceiling / floor) ** (1 / (count - 1))
    # Rounded up: the floor itself must stay affordable.
    amounts = [_rounded_up(floor * step**i) for i in range(count)]
    return sorted({min(amount, ceiling) for amount in amounts} | {ceiling})


def _rounded_up(amount: float) -> float:
    return float(f"{amount * 1.0005:.4g}")


def next_try(below: Sequence[float], tried: Mapping[int, float], allowed: float) -> int | None:
    """Which plan to fine-tune next, or None if that is settled.

    `below` are the points that fitted plans lie below the teacher, the cheapest first; `tried` those that
    fine-tuned ones do, by place; `allowed` is how many may be.
    """
    good = min((place for place, points in tried.items() if points <= allowed), default=len(below))
    bad = max((place for place, points in tried.items() if points > allowed and place < good), default=-1)
    between = range(bad + 1, good)
    if not between:
        return None
    left = _left(below, tried)
    promising = [place for place in between if left * below[place] <= allowed]
    if promising:
        return promising[0]
    if good == len(below):
        return between[len(between) // 2]
    nearest = between[-1]
    return None if left * below[nearest] > HOPELESS * allowed else nearest


def best_try(tried: Mapping[int, float], allowed: float) -> int | None:
    """The cheapest plan that was good enough."""
    return min((place for place, points in tried.items() if points <= allowed), default=None)


def _left(below: Sequence[float], tried: Mapping[int, float]) -> float:
    """The share of the missing points that training leaves, by what was tried last."""
    told = [place for place in tried if below[place] > FINE]
    if not told:
        return LEFT
    last = told[-1]
    return min(max(tried[last] / below[last], LEAST_LEFT), MOST_LEFT)
