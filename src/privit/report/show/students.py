"""Every model by its name: right in the clear, the same under MPC, and what a prediction costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from privit.report.figures.students import draw_students
from privit.report.read.cells import AXES, Answer, Cell, Point, spread
from privit.report.render.document import Item, Picture
from privit.report.show.fronts import View
from privit.report.show.tables import Column, Table

PICTURED = ("sent_bytes", "rounds")
NETWORKED = ("sent_bytes", "rounds", "seconds_lan", "seconds_wan")
COUNTED = ("sent_bytes", "rounds", "seconds")
CANNOT = "cannot be served"
KINDS = ("gelu", "softmax")


def show_students(view: View) -> Iterator[Item]:
    """The table of students, the picture, what was measured, private queries, and every protocol's costs."""
    yield from _picture(view)
    yield _table(view)
    yield from _measured(view)
    yield from _private(view)
    yield from _predicted(view)


def _picture(view: View) -> Iterator[Item]:
    """Models that can be served; the others have no place among offers."""
    shown = [axis for axis in PICTURED if any(axis in cell.costs for cell in view.cells)]
    served = [p for p in view.points if not p.first.unservable and all(p.cost(axis) for axis in shown)]
    if not shown or not served:
        return
    ordered = sorted(served, key=lambda point: -point.accuracy.mean)
    alt = "Accuracy against bytes sent and rounds. " + "; ".join(
        f"{p.first.student_label}: {100 * p.accuracy.mean:.1f} %" for p in ordered
    )
    caption = f"Accuracy on the test set against what one prediction costs ({view.protocol}, estimated)."
    title = f"One prediction, {view.protocol}"
    yield Picture(f"{view.slug}-accuracy-cost", alt, caption, draw_students(ordered, shown, title))


def _table(view: View) -> Table:
    norms = any(cell.replaces_norms for cell in view.cells)
    pools = any(cell.pools for cell in view.cells)
    asked = list(dict.fromkeys((a.protocol, a.between) for c in view.cells for a in c.answers))
    axes = [axis for axis in ("relu_ops", *NETWORKED) if any(axis in cell.costs for cell in view.cells)]
    columns = (
        Column("student"),
        Column("what it is"),
        Column("exact GELU + softmax sites"),
        *([Column("exact LayerNorms")] if norms else []),
        *([Column("tokens")] if pools else []),
        Column("validation", "percent"),
        Column("accuracy", "percent"),
        *(Column(f"as in the clear: {_where(*key)}") for key in asked),
        *(Column(AXES[axis], "short") for axis in axes),
    )
    rows = tuple(
        (
            p.first.student,
            p.first.student_label,
            _kept(p, KINDS),
            *([_kept(p, ("norm",))] if norms else []),
            *([_tokens(p.first.tokens)] if pools else []),
            p.value(lambda cell: cell.validation_accuracy),
            p.accuracy,
            *(_agreement(p, *key) for key in asked),
            *(p.cost(axis) for axis in axes),
        )
        for p in view.points
    )
    caption = (
        "Choices are made on validation images; accuracy is of all test images in the clear; under MPC, how "
        "many of the images asked got the class that they get in the clear. Costs are estimated; bytes, "
        f"rounds and seconds are of {view.protocol}."
    )
    return Table(f"{view.slug}-students", caption, columns, rows)


def _where(protocol: str, between: bool) -> str:
    return f"{protocol}, between processes" if between else f"{protocol}, simulated"


def _kept(point: Point, kinds: Sequence[str]) -> str:
    sites = point.first.sites
    return " + ".join(f"{point.kept(k).mean:,.0f}/{sites[k]:,}" for k in kinds if k in sites)


def _tokens(counts: Sequence[int]) -> str:
    """50 x 6, 17 x 6: how many tokens, in how many layers."""
    return ", ".join(f"{count} x {len(list(same))}" for count, same in groupby(counts))


def _answers(point: Point, protocol: str, between: bool) -> list[Answer]:
    found = (answer for cell in point.cells for answer in cell.answers)
    return [answer for answer in found if (answer.protocol, answer.between) == (protocol, between)]


def _agreement(point: Point, protocol: str, between: bool) -> str | None:
    found = _answers(point, protocol, between)
    if not found:
        return CANNOT if point.first.unservable else None
    same, right, images = (sum(getattr(a, n) for a in found) for n in ("same", "right", "images"))
    return f"{same:,} of {images:,} ({right:,} right)"


def _measured(view: View) -> Iterator[Item]:
    """A table for each protocol and network on which the students were measured."""
    for on in dict.fromkeys(on for cell in view.cells for on in cell.benched):
        yield _measured_on(view, on)


def _measured_on(view: View, on: str) -> Table:
    """What each student's prediction cost, beside the untouched model where that was in the same run."""
    found = [p for p in view.points if all(on in cell.benched for cell in p.cells)]
    graphs = list(dict.fromkeys(g for p in found for g in p.first.benched[on].get("against", {})))
    counted = [name for name in COUNTED if any(name in p.first.benched[on] for p in found)]
    shares = [(graph, name) for graph in graphs for name in counted]

    def row(point: Point) -> tuple[Any, ...]:
        own = [point.value(lambda cell, n=name: cell.benched[on].get(n)) for name in counted]  # type: ignore[misc]
        beside = [point.value(lambda cell, k=key: _share(cell, on, *k)) for key in shares]  # type: ignore[misc]
        return (point.first.student, point.first.student_label, *own, *beside)

    columns = (
        Column("student"),
        Column("what it is"),
        *(Column(AXES.get(name, name), "short") for name in counted),
        *(Column(f"{AXES.get(name, name)}, of {graph}", "percent") for graph, name in shares),
    )
    caption = f"One prediction, measured on {on}" + ("; shares are of one run." if graphs else ".")
    return Table(f"{view.slug}-measured-{on.replace('/', '-')}", caption, columns, tuple(map(row, found)))


def _share(cell: Cell, on: str, graph: str, name: str) -> float | None:
    own, other = cell.benched[on].get(name), cell.benched[on].get("against", {}).get(graph, {}).get(name)
    return own / other if own is not None and other else None


def _private(view: View) -> Iterator[Item]:
    """Queries between processes on private protocols."""
    rows: list[tuple[Any, ...]] = []
    for point in view.points:
        protocols = dict.fromkeys(a.protocol for c in point.cells for a in c.answers if a.between)
        for protocol in protocols:
            found = _answers(point, protocol, True)
            costs = (spread(getattr(answer, name) for answer in found) for name in COUNTED)
            images = sum(answer.images for answer in found)
            rows.append((point.first.student, point.first.student_label, protocol, images, *costs))
    if rows:
        named = (Column("student"), Column("what it is"), Column("protocol"), Column("queries", "count"))
        columns = (*named, *(Column(AXES.get(name, name), "short") for name in COUNTED))
        caption = "Asked between processes of one machine: the median query, measured."
        yield Table(f"{view.slug}-private", caption, columns, tuple(rows))


def _predicted(view: View) -> Iterator[Item]:
    """What `privit cost` says under every protocol."""
    protocols: Sequence[str] = list(dict.fromkeys(p for cell in view.cells for p in cell.predicted))
    if len(protocols) < 2:
        return
    columns = (Column("student"), Column("protocol"), *(Column(AXES[axis], "short") for axis in NETWORKED))
    rows = tuple(
        (point.first.student, protocol, *(_cost(point, protocol, axis) for axis in NETWORKED))
        for point in view.points
        for protocol in protocols
    )
    yield Table(f"{view.slug}-protocols", "Estimated (`privit cost`), by protocol.", columns, rows)


def _cost(point: Point, protocol: str, axis: str) -> Any:
    return point.value(lambda cell: cell.predicted.get(protocol, {}).get(axis))
