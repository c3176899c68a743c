"""What models keep, lose and spend: layers, classes, parts; and how well costs were predicted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from privit.report.figures.breakdown import draw_breakdown
from privit.report.figures.classes import draw_classes
from privit.report.figures.grid import draw_grid, grid_of
from privit.report.figures.layers import draw_layers
from privit.report.figures.predicted import draw_predicted
from privit.report.read.cells import AXES, Measured, Point, by_method, spread
from privit.report.render.document import Item, Picture
from privit.report.show.fronts import View
from privit.report.show.published import published_degradation, published_grid, published_layers
from privit.report.show.tables import Column, Table

KINDS = ("gelu", "softmax")
MOST_BUDGETS = 6
MOST_BARS = 8


def show_layers(view: View) -> Iterator[Item]:
    """A picture per budget of what each method kept where; the untouched model keeps everything."""
    chosen = [point for point in view.points if _has_choice(point)]
    budgets = list(dict.fromkeys(point.first.budget for point in chosen))[:MOST_BUDGETS]
    for i, budget in enumerate(budgets):
        found = [point for point in chosen if point.first.budget == budget]
        # Counts of heads and of rows do not belong on one axis.
        for name, group in _by_granularity(found).items():
            yield _layers(view, group, f"{view.slug}-layers-{i + 1}{name}", budget)
    yield from published_layers(view)


def show_grid(view: View) -> Iterator[Item]:
    """The heat map over GELU and softmax budgets."""
    found = [point for point in view.points if point.first.ours] or view.points
    grid = grid_of(found, "relu_ops")
    if min(grid.accuracy.shape) < 2:
        return
    alt = (
        f"Accuracy over {len(grid.gelu)} GELU budgets and {len(grid.softmax)} softmax budgets, "
        f"with lines of equal ReLUOps"
    )
    caption = (
        "Accuracy over both budgets, mean ± standard deviation over seeds; dashed: equal ReLUOps (estimated)."
    )
    yield Picture(
        f"{view.slug}-grid", alt, caption, draw_grid(grid, "relu_ops", "Accuracy over both budgets")
    )
    if view.with_published:
        yield published_grid(view)


def show_degradation(view: View) -> Iterator[Item]:
    """What each class loses against the teacher: maximum, mean, variance."""
    losses = [(point, found) for point in view.points if (found := _class_losses(point))]
    if not losses:
        return
    columns = (
        Column("method"),
        Column("budget"),
        Column("accuracy", "percent"),
        Column("most lost by a class", "points"),
        Column("mean lost", "points"),
        Column("variance (10^-3)", "plain"),
        Column("loses most on average"),
    )
    rows = tuple(
        (
            point.first.label,
            point.first.budget,
            point.accuracy,
            spread(max(seed) for seed in found),
            spread(statistics.fmean(seed) for seed in found),
            spread(1e3 * statistics.pvariance(seed) for seed in found),
            _worst_class(point, _mean_over_seeds(found)),
        )
        for point, found in losses
    )
    caption = (
        "Accuracy lost per class against the teacher: of each seed, mean ± standard deviation over seeds."
    )
    yield Table(f"{view.slug}-classes", caption, columns, rows)
    shown = {f"{p.first.label}, {p.first.budget}": _mean_over_seeds(f) for p, f in losses[: 2 * MOST_BARS]}
    alt = "Accuracy lost per class. " + "; ".join(
        f"{label}: at most {100 * max(found):.1f} points" for label, found in shown.items()
    )
    yield Picture(f"{view.slug}-class-losses", alt, "A dot per class, mean over seeds.", draw_classes(shown))
    if view.with_published:
        yield published_degradation(view)


def show_breakdown(view: View) -> Iterator[Item]:
    """ReLUOps by what causes them."""
    found = {f"{p.first.label}, {p.first.budget}": _parts(p) for p in view.points if p.first.parts}
    if not found:
        return
    costs = dict(list(found.items())[: 2 * MOST_BARS])
    alt = "ReLUOps by part. " + "; ".join(
        f"{label}: "
        + ", ".join(f"{part} {cost / max(sum(parts.values()), 1):.0%}" for part, cost in parts.items())
        for label, parts in costs.items()
    )
    caption = "What the ReLUOps of one prediction are spent on (the paper's constants, estimated)."
    yield Picture(f"{view.slug}-breakdown", alt, caption, draw_breakdown(costs))


def show_measured(measured: Sequence[Measured], name: str = "predicted") -> Iterator[Item]:
    """Predicted against measured, as a picture and a table."""
    if not measured:
        return
    worst = {
        quantity: max(abs(m.error) for m in measured if m.quantity == quantity)
        for quantity in dict.fromkeys(m.quantity for m in measured)
    }
    said = ", ".join(f"{AXES.get(q, q)} within {error:.1%}" for q, error in worst.items())
    alt = f"Predicted against measured, {len(measured)} values: {said}"
    caption = f"Every dot a program; on the line the prediction is right. Here: {said}."
    yield Picture(name, alt, caption, draw_predicted(measured))
    columns = (
        Column("program"),
        Column("protocol"),
        Column("quantity"),
        Column("predicted", "count"),
        Column("measured", "count"),
        Column("error", "points"),
    )
    rows = tuple(
        (m.program, m.protocol, AXES.get(m.quantity, m.quantity), m.predicted, m.measured, m.error)
        for m in measured
    )
    yield Table(f"{name}-table", "Error in per cent of the measured value.", columns, rows)


def _has_choice(point: Point) -> bool:
    """Whether a model keeps some sites but not all: only then it says something which."""
    cell = point.first
    kept, sites = (sum(map(count, KINDS)) for count in (cell.total, lambda kind: cell.sites.get(kind, 0)))
    return 0 < kept < sites or cell.replaces_norms or cell.pools


def _by_granularity(found: Sequence[Point]) -> dict[str, list[Point]]:
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in found:
        groups.setdefault(tuple(point.first.granularity.get(kind, "") for kind in KINDS), []).append(point)
    return {
        "" if i == 0 else "-" + "-".join(key): group[:MOST_BARS]
        for i, (key, group) in enumerate(groups.items())
    }


def _layers(view: View, found: Sequence[Point], name: str, budget: str) -> Picture:
    kinds = (*KINDS, *(["norm"] if any(p.first.replaces_norms for p in found) else []))
    kept = {
        kind: {
            point.first.label: [
                statistics.fmean(counts) for counts in zip(*(c.kept[kind] for c in point.cells), strict=True)
            ]
            for point in found
        }
        for kind in kinds
        if all(kind in point.first.kept for point in found)
    }
    if any(point.first.pools for point in found):
        kept["tokens"] = {point.first.label: list(map(float, point.first.tokens)) for point in found}
    alt = f"Sites kept per layer at {budget}. " + "; ".join(
        f"{label} {kind}: {' '.join(f'{n:.3g}' for n in counts)}"
        for kind, methods in kept.items()
        for label, counts in methods.items()
    )
    caption = f"Exact sites that each layer keeps at {budget}, mean over seeds."
    caption += " Tokens are those of each layer." if "tokens" in kept else ""
    return Picture(name, alt, caption, draw_layers(kept, found[0].first.granularity, by_method(view.points)))


def _class_losses(point: Point) -> list[list[float]]:
    """For each seed that knows them, what each class loses."""
    return [
        [before - after for before, after in zip(c.teacher_class_accuracy, c.class_accuracy, strict=True)]
        for c in point.cells
        if c.class_accuracy and len(c.class_accuracy) == len(c.teacher_class_accuracy)
    ]


def _mean_over_seeds(losses: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(values) for values in zip(*losses, strict=True)]


def _worst_class(point: Point, losses: Sequence[float]) -> str:
    index, names = losses.index(max(losses)), point.first.class_names
    return names[index] if index < len(names) else str(index)


def _parts(point: Point) -> dict[str, float]:
    """Mean ReLUOps by part."""
    return {
        part: statistics.fmean(cell.parts.get(part, 0.0) for cell in point.cells)
        for part in point.first.parts
    }
