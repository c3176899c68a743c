"""Budgets in cost: what each was, what came of it, and what equal accuracy costs against budgets in sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from privit.report.compare.fronts import cheapest_as_good
from privit.report.read.cells import Allowance, Cell, Point, by_method
from privit.report.render.document import Item, Text, listed
from privit.report.show.fronts import View
from privit.report.show.tables import Column, Table

COMPARED = {
    "rounds": "fewer rounds",
    "sent_bytes": "fewer bytes",
    "seconds_lan": "less LAN time",
    "seconds_wan": "less WAN time",
}


def show_budgets(view: View) -> Iterator[Item]:
    """Nothing for budgets in sites; otherwise how far each was spent, and what it bought."""
    if not view.priced:
        return
    yield from _spent(view)
    yield from _equal_accuracy(view)


def _spent(view: View) -> Iterator[Item]:
    priced = [point for point in view.points if point.first.allowance]
    columns = (
        Column("method"),
        Column("budget"),
        Column("allowed"),
        Column("predicted by the search", "percent"),
        Column("exported model", "percent"),
        Column("exported above it", "count"),
    )
    rows = tuple(
        (
            p.first.label,
            p.first.budget,
            _said(p.first.allowance),
            p.value(lambda cell: _share(cell, "predicted")),
            p.value(lambda cell: _share(cell, "exported")),
            sum((_share(cell, "exported") or 0) > 1 for cell in p.cells),
        )
        for p in priced
    )
    caption = (
        "Budgets in cost, and what share of each is spent: as predicted when the plan was cut, and as "
        "estimated for the exported model, whose ranges fine-tuning may have changed. Last: seeds above it."
    )
    yield Table(f"{view.slug}-spent", caption, columns, rows)
    dear: dict[str, list[str]] = {}
    for label, budget, *_, seeds in rows:
        if seeds:
            dear.setdefault(label, []).append(f"{budget} ({seeds})")
    if dear:
        yield Text(("Above their budget in the end, and in how many seeds:",), "behind")
        yield listed((f"{label}: {', '.join(budgets)}" for label, budgets in dear.items()), "behind")


def _said(allowance: Allowance | None) -> str:
    assert allowance is not None
    return f"{allowance.price.show(allowance.allowed)}, {allowance.price.setting}"


def _share(cell: Cell, name: str) -> float | None:
    found = cell.allowance
    value = getattr(found, name) if found else None
    return None if found is None or value is None else value / found.allowed


def _equal_accuracy(view: View) -> Iterator[Item]:
    """For each model with a budget in sites, the cheapest one with a budget in cost that is as accurate."""
    axes = [axis for axis in COMPARED if any(axis in cell.costs for cell in view.cells)]
    priced = by_method(p for p in view.points if p.first.allowance and p.first.ours)
    counted = [p for p in view.points if not p.first.allowance and p.first.ours]
    rows: list[tuple[Any, ...]] = []
    for label, own in priced.items():
        allowance = own[0].first.allowance
        axis = allowance.axis if allowance and allowance.axis in axes else "seconds_wan"
        for theirs in counted:
            mine = cheapest_as_good(own, theirs, axis)
            head = (theirs.first.label, theirs.first.budget, theirs.accuracy, label)
            if mine is None:
                rows.append((*head, "none", None, *(None for _ in axes)))
            else:
                times = (_times(theirs, mine, a) for a in axes)
                rows.append((*head, mine.first.budget, mine.accuracy, *times))
    if not rows:
        return
    columns = (
        Column("in sites"),
        Column("its budget"),
        Column("accuracy", "percent"),
        Column("in cost"),
        Column("its budget"),
        Column("accuracy", "percent"),
        *(Column(COMPARED[axis], "times") for axis in axes),
    )
    caption = (
        "What equal accuracy costs: for each model with a budget in sites, the cheapest with a budget in "
        "cost whose mean accuracy is no lower than its mean less its deviation over seeds. Last, how "
        "many times less it costs; below 1 it costs more. None: no model with a budget in cost is as good."
    )
    yield Table(f"{view.slug}-equal-accuracy", caption, columns, tuple(rows))


def _times(theirs: Point, mine: Point, axis: str) -> float | None:
    other, own = theirs.cost(axis), mine.cost(axis)
    return other.mean / own.mean if other and own and own.mean else None
