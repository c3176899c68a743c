"""Rounds by layer and by kind: which layers still pay for having any exact site at all."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from privit.report.figures.rounds import draw_rounds
from privit.report.read.cells import Point
from privit.report.render.document import Item, Picture
from privit.report.show.fronts import View
from privit.report.show.tables import Column, Table

WITHIN = 0.01
"""A method's model is chosen for its rounds among those within a point of its best accuracy."""
PARTS = {"softmax": "attention", "gelu": "MLP"}


def show_rounds(view: View) -> Iterator[Item]:
    """Rounds by layer and kind of one model of each method; where budgets are in cost, of every model."""
    chosen = {label: point for label in _labels(view) if (point := _frugal(view, label))}
    if not chosen:
        return
    rounds = {label: _layer_rounds(point) for label, point in chosen.items()}
    alt = "Rounds by layer. " + "; ".join(
        f"{label}: {sum(found.values()):.0f} in all" for label, found in rounds.items()
    )
    which = "; ".join(f"{label} {point.first.budget}" for label, point in chosen.items())
    caption = (
        f"Rounds by layer ({view.protocol}, estimated, mean over seeds) of each method's model with the "
        f"fewest rounds within a point of its best accuracy: {which}."
    )
    figure = draw_rounds(rounds, {label: _kind_rounds(p) for label, p in chosen.items()}, view.protocol)
    yield Picture(f"{view.slug}-layer-rounds", alt, caption, figure)
    if view.priced:
        yield from _table(view)


def _labels(view: View) -> list[str]:
    return list(dict.fromkeys(point.first.label for point in view.points))


def _frugal(view: View, label: str) -> Point | None:
    own = [p for p in view.points if p.first.label == label and p.first.layer_rounds]
    best = max((p.accuracy.mean for p in own), default=0.0)
    near = [p for p in own if p.accuracy.mean >= best - WITHIN]
    return min(near, key=lambda p: sum(_layer_rounds(p).values()), default=None)


def _layer_rounds(point: Point) -> dict[str, float]:
    return {
        name: statistics.fmean(cell.layer_rounds.get(name, 0.0) for cell in point.cells)
        for name in point.first.layer_rounds
    }


def _kind_rounds(point: Point) -> dict[str, list[float]]:
    found = [cell.kind_rounds for cell in point.cells if cell.kind_rounds]
    return {
        kind: [statistics.fmean(layer) for layer in zip(*(f[kind] for f in found), strict=True)]
        for kind in (point.first.kind_rounds if found else ())
    }


def _table(view: View) -> Iterator[Table]:
    """A row for each model and kind, a column for each layer."""
    rows = []
    for point in view.points:
        total = sum(_layer_rounds(point).values())
        for kind, counts in _kind_rounds(point).items():
            kept = [statistics.fmean(n) for n in zip(*(c.kept[kind] for c in point.cells), strict=True)]
            emptied = sum(not n for n in kept)
            rows.append(
                (point.first.label, point.first.budget, PARTS[kind], *counts, sum(counts), total, emptied)
            )
    if not rows:
        return
    depth = len(rows[0]) - 6
    columns = (
        Column("method"),
        Column("budget"),
        Column("part"),
        *(Column(f"layer {i + 1}", "count") for i in range(depth)),
        Column("sum", "count"),
        Column("whole model", "count"),
        Column("layers without an exact site", "count"),
    )
    caption = (
        f"Rounds by layer and kind ({view.protocol}, estimated, mean over seeds). The whole model also has "
        "LayerNorms, embedding and head, which no plan changes."
    )
    yield Table(f"{view.slug}-kind-rounds", caption, columns, tuple(rows))
