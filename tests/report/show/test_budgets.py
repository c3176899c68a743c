"""Budgets in cost in a report: spent, in one unit, and beside budgets in sites, whoever is ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import SPEC, SweepFiles, cost_of, plan_of
from test_sections import lines, pictures, tables

from privit.cost.estimate import estimate
from privit.report.compare.fronts import cheapest_as_good
from privit.report.figures.front import draw_front
from privit.report.figures.layers import draw_layers
from privit.report.figures.style import looks
from privit.report.read.cells import Cell, Point, Subject
from privit.report.read.gather import gather
from privit.report.render.document import Document
from privit.report.show.sections import build

FAST = "semi2k-benchmark"
PRICE = {"unit": "seconds", "protocol": FAST, "network": "wan"}
DEAR, CHEAP = (34, 68), (4, 8)


def budget_of(seconds: float, predicted: float | None) -> dict[str, Any]:
    named = {"name": f"seconds-{seconds:.3g}", "asked": {"seconds": seconds}, "price": PRICE}
    return named | {"predicted_cost": predicted}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Two searches, in sites and in seconds, each ahead once."""
    files = SweepFiles(tmp_path_factory.mktemp("priced"))
    files.experiment("cost", ["front"], prices=[PRICE])
    wan = {budget: cost_of(budget)["spu"][FAST]["wan"]["seconds"] for budget in (DEAR, CHEAP)}
    for seed in (0, 1):
        noise = 0.002 * seed
        files.cell("cost", "privit-g", DEAR, seed, 0.95 + noise)
        files.cell("cost", "privit-g", CHEAP, seed, 0.80 + noise)
        enough, short = budget_of(wan[DEAR] / 0.99, 0.98 * wan[DEAR]), budget_of(wan[CHEAP] / 1.02, None)
        files.cell("cost", "privit-cost", DEAR, seed, 0.94 + noise, in_cost=enough)
        files.cell("cost", "privit-cost", CHEAP, seed, 0.951 + noise, in_cost=short)
        files.cell("cost", "dense", None, seed, 0.97)
    # Another protocol is asked for, but budgets are in this one.
    return build(gather(files.finish(), "aby3"), with_published=False)


def test_every_front_is_in_the_budgets_unit_which_comes_first(document: Document) -> None:
    names = list(pictures(document))
    assert names[:2] == ["cost-seconds-wan", "cost-seconds-lan"]
    assert {"cost-rounds", "cost-sent-bytes", "cost-layer-rounds"} < set(names)
    rows = tables(document)["cost-points"].rows
    assert {row[0] for row in rows} == {"PriViT-G", "privit-cost", "dense"}
    assert all(None not in row for row in rows)
    assert any(f"are given in seconds under {FAST} on wan" in line for line in lines(document))


def test_how_far_a_budget_is_spent_is_said_and_by_whom_it_is_broken(document: Document) -> None:
    enough, short = tables(document)["cost-spent"].texts()
    assert enough[3:] == ["97.0 ± 0.0 %", "99.0 ± 0.0 %", "0"]
    assert short[3:] == ["–", "102.0 ± 0.0 %", "2"]
    assert any(line.startswith("Above their budget") for line in lines(document))
    assert f"privit-cost: {short[1]} (2)" in lines(document)


def test_equal_accuracy_is_priced_against_budgets_in_sites(document: Document) -> None:
    table = tables(document)["cost-equal-accuracy"]
    assert [row[:2] for row in table.rows] == [("PriViT-G", "34-68"), ("PriViT-G", "4-8")]
    dear, cheap = (cost_of(budget)["spu"][FAST]["lan"] for budget in (DEAR, CHEAP))
    fewer = dict(zip([column.name for column in table.columns], table.rows[0], strict=False))
    assert fewer["fewer rounds"] == pytest.approx(dear["rounds"] / cheap["rounds"])
    assert fewer["fewer bytes"] == pytest.approx(dear["sent_bytes"] / cheap["sent_bytes"])
    assert table.texts()[1][-1] == "1.00 x"


def test_where_a_budget_in_cost_is_behind_one_in_sites_is_said_first(
    document: Document, tmp_path: Path
) -> None:
    said = [line for item in document.summary for line in getattr(item, "lines", ())]
    assert "Nowhere is a budget in cost behind one in sites on every seed." in said
    files = SweepFiles(tmp_path)
    files.experiment("cost", ["front"], prices=[PRICE])
    files.cell("cost", "privit-g", CHEAP, 0, 0.95)
    files.cell("cost", "privit-cost", CHEAP, 0, 0.90, in_cost=budget_of(9, 8.0))
    summary = build(gather(files.finish(), FAST), with_published=False).summary
    said = [line for item in summary for line in getattr(item, "lines", ())]
    assert "Where a budget in cost is behind one in sites:" in said
    assert any("privit-cost by WAN seconds at 1 of 1 point, by up to 5.0" in line for line in said)


def test_rounds_by_layer_and_kind_are_those_of_the_cost_model(document: Document) -> None:
    rows = [row for row in tables(document)["cost-kind-rounds"].rows if row[:2] == ("PriViT-G", "4-8")]
    assert [row[2] for row in rows] == ["attention", "MLP"]
    whole = estimate(SPEC, plan_of(CHEAP), "spu", protocol=FAST)["rounds"]
    assert all(row[-2] == whole for row in rows)
    assert 0 < sum(row[-3] for row in rows) < whole
    kept = plan_of(CHEAP).kept("gelu")
    assert rows[1][-1] == kept.count(0)
    empty, used = kept.index(0), kept.index(max(kept))
    assert rows[1][3 + empty] < rows[1][3 + used]


def point(accuracies: list[float], cost: float) -> Point:
    subject = Subject("digits", "a model")
    return Point(
        tuple(
            Cell("e", "m", "m", "b", seed, subject, accuracy, costs={"rounds": cost})
            for seed, accuracy in enumerate(accuracies)
        )
    )


def test_no_accuracy_axis_and_no_error_bar_goes_beyond_100_per_cent() -> None:
    found = [point([1.0, 0.97, 1.0], 100.0), point([0.02, 0.0, 0.0], 50.0)]
    (axes,) = draw_front({"m": found}, "rounds", "title").axes
    low, high = axes.get_ylim()
    assert (low, high) == (0.0, 100.0)
    ends = [y for lines_ in axes.collections for path in lines_.get_paths() for y in path.vertices[:, 1]]
    # Vertical bars are in data units; their ends are what a reader reads.
    assert ends
    assert max(ends) <= 100
    assert min(ends) >= 0


def test_the_cheapest_as_good_is_within_the_deviation_or_nobody() -> None:
    other = point([0.90, 0.94], 100.0)
    own = [point([0.88, 0.90], 20.0), point([0.90, 0.90], 30.0), point([0.99, 0.99], 60.0)]
    assert cheapest_as_good(own, other, "rounds") is own[1]
    assert cheapest_as_good(own[:1], other, "rounds") is None


def test_a_method_looks_the_same_with_and_without_the_papers_points() -> None:
    ours = ["cost-budgeted PriViT", "PriViT-G", "fitted"]
    both = looks(ours, ["MPCViT", "PriViT-G"])
    assert {label: both[label] for label in ours} == looks(ours)
    assert len({look.colour for look in both.values()}) == 4


def test_layers_that_keep_nothing_have_no_negative_counts() -> None:
    figure = draw_layers({"softmax": {"a": [0.0, 0.0]}}, {"softmax": "row"})
    assert figure.axes[0].get_ylim()[0] == 0
