"""An accuracy is found on the ladder with few fine-tunings."""

from __future__ import annotations

import pytest

from privit.building.rungs import best_try, next_try, rung_costs

FITTED = [20.0, 14.0, 9.0, 6.0, 4.0, 2.5, 1.5, 0.5, 0.0]
"""Points below the teacher of nine fitted plans, the cheapest first."""


def tries(trained: list[float], allowed: float) -> dict[int, float]:
    """All that is fine-tuned when plans end with these points below the teacher, in order."""
    tried: dict[int, float] = {}
    while (place := next_try(FITTED, tried, allowed)) is not None:
        assert place not in tried
        tried[place] = trained[place]
    return tried


def test_costs_go_from_the_floor_to_the_ceiling_in_equal_ratios() -> None:
    costs = rung_costs(10.0, 160.0, 5)
    assert costs == pytest.approx([10, 20, 40, 80, 160], rel=2e-3)
    assert costs[0] >= 10.0
    assert costs[-1] == 160.0
    assert rung_costs(10.0, 9.0) == [10.0]


def test_the_first_try_is_the_cheapest_plan_that_is_foreseen_to_be_good_enough() -> None:
    assert next_try(FITTED, {}, 2.0) == 4  # 0.4 x 4 points


def test_a_good_try_settles_it_where_the_next_cheaper_one_is_hopeless() -> None:
    # 1.9 of 4 points were left, so 6 points would leave 2.9: worth a try for 2, hopeless for 1.2.
    assert next_try(FITTED, {4: 1.9}, 2.0) == 3
    assert next_try(FITTED, {5: 1.1, 4: 1.9}, 1.2) is None


@pytest.mark.parametrize("left", [0.1, 0.3, 0.4, 0.6, 0.9])
@pytest.mark.parametrize("allowed", [0.5, 1.0, 2.0, 5.0])
def test_few_tries_find_the_cheapest_plan_or_a_neighbour_of_it(left: float, allowed: float) -> None:
    trained = [left * points for points in FITTED]
    tried = tries(trained, allowed)
    found = best_try(tried, allowed)
    cheapest = min(place for place, points in enumerate(trained) if points <= allowed)
    assert found is not None
    assert found == cheapest
    assert len(tried) <= 4


def test_where_no_plan_is_good_enough_the_dearest_was_tried() -> None:
    trained = [points + 3 for points in FITTED]
    tried = tries(trained, 1.0)
    assert best_try(tried, 1.0) is None
    assert len(FITTED) - 1 in tried


def test_a_plan_that_diverged_counts_as_bad_and_dearer_ones_are_tried() -> None:
    tried = tries([100.0] * 5 + [1.0] * 4, 1.5)
    assert best_try(tried, 1.5) == 5
