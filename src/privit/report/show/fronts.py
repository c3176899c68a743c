"""Accuracy against what a model costs or keeps: pictures, verdicts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from privit.report.compare.verdicts import HOW, Verdict, numbers, verdicts
from privit.report.figures.front import draw_front
from privit.report.paper.published import Series, describe, published
from privit.report.read.cells import AXES, COUNTS, Cell, Experiment, Point, by_method, points
from privit.report.render.document import Item, Picture, listed
from privit.report.show.tables import Column, Table

FRONT_AXES = ("relu_ops", "sent_bytes", "rounds", "seconds_lan", "seconds_wan")
VERDICT_AXES = ("relu_ops", "seconds_wan")
"""The paper's unit, and what a user waits for."""
OTHER_DATA = "another data set and model: compare the shape, not the height"


@dataclass(frozen=True)
class View:
    """What is needed to show one experiment; `with_published` is what the user asked for."""

    experiment: Experiment
    cells: Sequence[Cell]
    protocol: str
    with_published: bool = True

    @property
    def points(self) -> list[Point]:
        """The cells over seeds."""
        return points(self.cells)

    @property
    def priced(self) -> list[str]:
        """The axes on which budgets in cost are given; empty where all are in sites."""
        return list(dict.fromkeys(cell.allowance.axis for cell in self.cells if cell.allowance))

    @property
    def slug(self) -> str:
        """The experiment's name as part of a file's name."""
        kept = "".join(c if c.isalnum() else "-" for c in self.experiment.name.lower())
        return "-".join(part for part in kept.split("-") if part)[:60] or "runs"

    def series(self, axis: str) -> tuple[list[Series], bool]:
        """The paper's points over an axis, and whether they are of the same data set."""
        if not self.with_published or not self.cells:
            return [], False
        return published(axis, self.experiment.paper, self.cells[0].subject.data)


def show_front(view: View) -> Iterator[Item]:
    """What the fronts say, then a picture per cost."""
    yield from _verdicts(view)
    for axis in _in_order(view):
        if any(point.cost(axis) for point in view.points):
            yield _picture(view, axis, f"Accuracy against {AXES[axis]}", per_method=True)


def _in_order(view: View) -> list[str]:
    """The axes as they are shown: what budgets are given in first, seconds with their other network."""
    seconds = any(axis.startswith("seconds") for axis in view.priced)
    near = [axis for axis in FRONT_AXES if seconds and axis.startswith("seconds")]
    first = [axis for axis in view.priced if axis in FRONT_AXES]
    return list(dict.fromkeys([*first, *near, *FRONT_AXES]))


def show_softmax(view: View) -> Iterator[Item]:
    """Accuracy against the softmax rows that are kept."""
    yield _picture(view, "kept_softmax_rows", "Accuracy against softmax rows kept", per_method=False)


def show_gelu(view: View) -> Iterator[Item]:
    """Accuracy against the GELUs that are kept."""
    yield _picture(view, "kept_gelu_elements", "Accuracy against GELUs kept", per_method=False)


def show_table(view: View) -> Iterator[Item]:
    """A row per method and budget; and, where methods share budgets, a table of those."""
    found = view.points
    axes = [axis for axis in AXES if any(point.cost(axis) for point in found)]
    columns = (
        Column("method"),
        Column("budget"),
        Column("seeds", "count"),
        Column("accuracy", "percent"),
        Column("against the teacher", "points"),
        Column("GELU sites", "count"),
        Column("softmax sites", "count"),
        *(Column(AXES[axis], "short") for axis in axes),
    )
    rows = tuple(
        (
            p.first.label,
            p.first.budget,
            len(p.cells),
            p.accuracy,
            p.value(_against_teacher),
            p.kept("gelu"),
            p.kept("softmax"),
            *(p.cost(axis) for axis in axes),
        )
        for p in found
    )
    caption = (
        "Mean ± standard deviation over seeds. Costs are estimated; "
        f"bytes, rounds and seconds are those of {view.protocol}."
    )
    yield Table(f"{view.slug}-points", caption, columns, rows)
    yield from _shared_budgets(view)


def show_seconds(view: View) -> Iterator[Item]:
    """What a prediction takes on each network, and what was measured."""
    axes = [a for a in ("sent_bytes", "rounds", "seconds_lan", "seconds_wan") if _has(view, a)]
    measured = sorted({(m.protocol, m.quantity) for c in view.cells for m in c.measured})
    columns = (
        Column("method"),
        Column("budget"),
        Column("accuracy", "percent"),
        *(Column(f"{AXES[axis]} (estimated)", "short") for axis in axes),
        *(Column(f"{AXES[quantity]} ({protocol}, measured)", "short") for protocol, quantity in measured),
    )
    rows = tuple(
        (
            p.first.label,
            p.first.budget,
            p.accuracy,
            *(p.cost(axis) for axis in axes),
            *(p.value(lambda cell, key=key: _measured(cell, *key)) for key in measured),  # type: ignore[misc]
        )
        for p in view.points
    )
    yield Table(f"{view.slug}-seconds", f"One prediction after set-up, {view.protocol}.", columns, rows)


def _has(view: View, axis: str) -> bool:
    return any(axis in cell.costs for cell in view.cells)


def _against_teacher(cell: Cell) -> float | None:
    return None if cell.teacher_accuracy is None else cell.accuracy - cell.teacher_accuracy


def _measured(cell: Cell, protocol: str, quantity: str) -> float | None:
    found = [m.measured for m in cell.measured if (m.protocol, m.quantity) == (protocol, quantity)]
    return found[0] if found else None


def _picture(view: View, axis: str, title: str, per_method: bool) -> Picture:
    methods = by_method(view.points)
    series, same = view.series(axis)
    name = {**AXES, **COUNTS}[axis]
    seeds = max((len(point.cells) for point in view.points), default=1)
    bars = f"bars: standard deviation over {seeds} seeds" if seeds > 1 else "one seed, so no error bars"
    how = "lines join each method's front" if per_method else "lines join each method's points"
    whose = f" ({view.protocol})" if axis in ("sent_bytes", "rounds", "seconds_lan", "seconds_wan") else ""
    alt = f"{title}. " + "; ".join(f"{label}: {_range(found, axis)}" for label, found in methods.items())
    origin = f"Hollow: the paper's {describe(series)}" + ("" if same else f"; {OTHER_DATA}") + "."
    return Picture(
        f"{view.slug}-{axis.replace('_', '-')}",
        alt,
        f"Accuracy on the test set against {name}{whose}, estimated; {how}; {bars}.",
        draw_front(methods, axis, title, per_method=per_method),
        draw_front(methods, axis, title, series, per_method) if series else None,
        origin if series else "",
    )


def _range(found: Sequence[Point], axis: str) -> str:
    values = [100 * point.accuracy.mean for point in found if point.cost(axis)]
    if not values:
        return "none"
    low, high = min(values), max(values)
    return f"{low:.1f} %" if low == high else f"{low:.1f} to {high:.1f} %"


def experiment_verdicts(view: View) -> list[Verdict]:
    """What an experiment's fronts say, if it is about fronts, over the axes that it has."""
    if "front" not in view.experiment.shows:
        return []
    axes = dict.fromkeys((*view.priced, "sent_bytes")) if view.priced else VERDICT_AXES
    return verdicts(view.points, [axis for axis in axes if _has(view, axis)])


def _verdicts(view: View) -> Iterator[Item]:
    found = experiment_verdicts(view)
    if not found:
        return
    columns = (
        Column("ours"),
        Column("against"),
        Column("at equal"),
        Column("points", "count"),
        Column("ahead", "count"),
        Column("level", "count"),
        Column("behind", "count"),
        Column("too dear", "count"),
        Column("furthest behind"),
    )
    rows = tuple(
        (
            v.ours,
            v.theirs,
            "GELUs" if v.equal_gelus else AXES[v.axis],
            v.points,
            *(v.count(word) for word in ("ahead", "level", "behind")),
            len(v.cheaper),
            numbers(v.worst) if v.worst else None,
        )
        for v in found
    )
    yield Table(f"{view.slug}-comparisons", HOW, columns, rows)
    yield listed((v.text for v in found), folded=f"These {len(found)} comparisons in sentences")


def _shared_budgets(view: View) -> Iterator[Table]:
    """Accuracy by budget and method, where at least two methods were run at one budget."""
    methods = by_method(view.points)
    budgets = dict.fromkeys(point.first.budget for point in view.points)
    table = {
        budget: [next((p for p in found if p.first.budget == budget), None) for found in methods.values()]
        for budget in budgets
    }
    shared = {budget: row for budget, row in table.items() if sum(p is not None for p in row) > 1}
    if not shared:
        return
    best = {
        (i, 1 + max((j for j, p in enumerate(row) if p), key=lambda j: row[j].accuracy.mean))  # type: ignore[union-attr]
        for i, row in enumerate(shared.values())
    }
    rows = tuple((budget, *(p.accuracy if p else None for p in row)) for budget, row in shared.items())
    columns = (Column("budget"), *(Column(label, "percent") for label in methods))
    caption = "Accuracy at equal budgets, mean ± standard deviation over seeds; the best of a row is bold."
    yield Table(f"{view.slug}-budgets", caption, columns, rows, best=frozenset(best))
