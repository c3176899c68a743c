"""Fronts, and who is ahead of whom."""

from __future__ import annotations

import pytest

from privit.report.compare.fronts import best_within, front, lead, leads, leads_at_equal_gelus
from privit.report.compare.verdicts import in_brief, verdicts
from privit.report.read.cells import Cell, Point, Subject, points

SUBJECT = Subject("digits", "a ViT")


def cell(method: str, cost: float, accuracy: float, seed: int = 0, gelu: int = 1) -> Cell:
    """A model of which only cost, accuracy and GELUs matter."""
    costs = {"relu_ops": cost}
    return Cell(
        "e", method, method, f"{cost:g}", seed, SUBJECT, accuracy, {"gelu": [gelu]}, {"gelu": 9}, costs=costs
    )


def made(method: str, *models: tuple[float, float]) -> list[Point]:
    """A method's points, one seed each."""
    return points(cell(method, cost, accuracy) for cost, accuracy in models)


def costs(found: list[Point]) -> list[float]:
    """The cost of each point."""
    return [point.first.costs["relu_ops"] for point in found]


def test_a_front_leaves_out_what_is_dearer_and_no_better():
    found = made("a", (3, 0.8), (1, 0.5), (2, 0.9), (4, 0.9), (5, 0.95))
    assert costs(front(found, "relu_ops")) == [1, 2, 5]


def test_of_two_models_at_one_cost_the_better_is_on_the_front():
    found = points([cell("a", 1, 0.5), cell("b", 1, 0.6)])
    assert [point.first.method for point in front(found, "relu_ops")] == ["b"]


def test_a_model_without_that_cost_is_on_no_front():
    assert front(made("a", (1, 0.5)), "sent_bytes") == []


def test_cells_that_differ_by_seed_make_one_point():
    found = points([cell("a", 1, 0.5, 0), cell("a", 1, 0.7, 1), cell("b", 1, 0.7, 1)])
    assert [point.seeds for point in found] == [[0, 1], [1]]
    assert found[0].accuracy.mean == pytest.approx(0.6)
    assert found[0].accuracy.deviation == pytest.approx(0.1 * 2**0.5)


def test_our_best_model_within_a_cost_may_be_a_cheaper_one():
    ours = made("privit-g", (1, 0.9), (2, 0.8), (3, 0.95))
    best = best_within(ours, "relu_ops", 2)
    assert best is not None
    assert best.first.costs["relu_ops"] == 1
    assert best_within(ours, "relu_ops", 0.5) is None


def test_a_lead_is_paired_by_seed():
    ours = points([cell("privit-g", 1, 0.5, 0), cell("privit-g", 1, 0.9, 1)])[0]
    theirs = points([cell("snl", 2, 0.4, 0), cell("snl", 2, 0.8, 1)])[0]
    found = lead(theirs, ours, "relu_ops")
    assert found.by_seed == pytest.approx((0.1, 0.1))
    assert found.difference.deviation == pytest.approx(0, abs=1e-12)
    assert found.verdict == "ahead"
    assert found.cost_ratio == 0.5


def test_ahead_on_one_seed_and_behind_on_another_is_level():
    ours = points([cell("privit-g", 1, 0.5, 0), cell("privit-g", 1, 0.9, 1)])[0]
    theirs = points([cell("snl", 2, 0.6, 0), cell("snl", 2, 0.8, 1)])[0]
    assert lead(theirs, ours, "relu_ops").verdict == "level"


def test_points_below_our_cheapest_are_counted_apart():
    compared, cheaper = leads(made("privit-g", (2, 0.9)), made("x", (1, 0.5), (2, 0.8)), "relu_ops")
    assert [found.verdict for found in compared] == ["ahead"]
    assert costs(cheaper) == [1]


def test_snl_is_compared_at_equal_gelus_whatever_it_costs():
    ours = points([cell("privit-g", 1, 0.8, gelu=4), cell("privit-g", 2, 0.95, gelu=8)])
    theirs = points([cell("snl", 9, 0.9, gelu=4)])
    found = leads_at_equal_gelus(ours, theirs, "relu_ops")
    assert [entry.ours.first.costs["relu_ops"] for entry in found] == [1]
    assert found[0].verdict == "behind"


def test_the_report_says_plainly_where_privit_is_behind():
    found = verdicts([*made("privit-g", (2, 0.8)), *made("mpcvit", (2, 0.85))], ["relu_ops"])
    assert [verdict.behind for verdict in found] == [True]
    assert "privit-g against mpcvit by ReLUOps: behind at 1 of 1" in found[0].text
    assert "80.0 % against 85.0 % (-5.0 points, one seed)" in found[0].text
    assert in_brief(found) == [
        "behind mpcvit: privit-g by ReLUOps at 1 of 1 point, by up to 5.0 percentage points"
    ]


def test_one_cheap_point_of_another_method_is_named():
    found = verdicts([*made("privit-g", (2e6, 0.8)), *made("mpcformer", (1e6, 0.75))], ["relu_ops"])
    assert found[0].behind
    assert found[0].said == "too dear for 1 of 1"
    assert "mpcformer reaches 75.0 % at 1 M ReLUOps" in found[0].text
    assert "the cheapest privit-g has 80.0 % at 2 M ReLUOps" in found[0].text


def test_ahead_somewhere_and_behind_elsewhere_says_both():
    ours = made("privit-g", (1, 0.8), (2, 0.85))
    found = verdicts([*ours, *made("mpcvit", (1, 0.7), (2, 0.9))], ["relu_ops"])
    assert found[0].said == "ahead at 1, behind at 1 of 2"
    assert "85.0 % against 90.0 %" in found[0].text


def test_where_privit_leads_everywhere_nothing_is_said_to_be_behind():
    found = verdicts([*made("privit-g", (1, 0.8)), *made("random", (1, 0.7))], ["relu_ops"])
    assert found[0].said == "ahead at 1 of 1"
    assert in_brief(found) == []


def test_nobody_is_compared_with_the_untouched_model():
    assert verdicts([*made("privit-g", (1, 0.8)), *made("dense", (9, 0.99))], ["relu_ops"]) == []


def test_an_axis_that_nothing_has_gives_no_verdict():
    assert verdicts([*made("privit-g", (1, 0.8)), *made("snl", (9, 0.99))], ["seconds_wan"]) == []
