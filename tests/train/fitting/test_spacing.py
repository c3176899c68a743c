"""LayerNorms that stay are spread, and of all ways to spread them the best is taken."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privit.train.fitting.spacing import MOST_REUSED, spaced

LAYERS = [np.zeros(2)] * 3 + [np.zeros(3)]


def longest_run(kept: np.ndarray) -> int:
    return max(len(run) for run in "".join("x" if k else "." for k in kept).split("x"))


def drawn(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.exponential(size=len(layer)) for layer in LAYERS]


@pytest.mark.parametrize("budget", range(1, 10))
def test_as_many_stay_as_asked_for_the_first_among_them_and_none_too_far_from_the_next(budget: int) -> None:
    kept = spaced(drawn(budget), budget)
    assert [len(layer) for layer in kept] == [2, 2, 2, 3]
    flat = np.concatenate(kept)
    assert flat.sum() == budget
    assert flat[0]
    assert longest_run(flat) <= max(MOST_REUSED, -(-(9 - budget) // budget))


@pytest.mark.parametrize("seed", range(5))
def test_no_other_way_to_spread_them_has_a_larger_sum(seed: int) -> None:
    values, budget = drawn(seed), 4
    flat = np.concatenate(values)
    ways = [np.isin(np.arange(9), (0, *rest)) for rest in combinations(range(1, 9), budget - 1)]
    best = max(flat[way].sum() for way in ways if longest_run(way) <= MOST_REUSED)
    assert flat[np.concatenate(spaced(values, budget))].sum() == pytest.approx(best)


def test_nothing_stays_where_nothing_may() -> None:
    assert not np.concatenate(spaced(drawn(0), 0)).any()
