"""Accuracy against a cost: a line per method, error bars over seeds, the paper's points if asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privit.report.compare.fronts import front
from privit.report.figures.style import (
    Look,
    drawing,
    legend_below,
    legend_rows,
    looks,
    new_figure,
    short_ticks,
)
from privit.report.paper.published import Series
from privit.report.read.cells import AXES, COUNTS, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

SIDEWAYS = 2.5
"""Typographic points between methods whose costs coincide."""
LOGARITHMIC_FROM = 4.0
"""Costs that lie this many times apart are drawn on a logarithmic axis."""


def draw_front(
    methods: Mapping[str, Sequence[Point]],
    axis: str,
    title: str,
    published: Sequence[Series] = (),
    per_method: bool = True,
) -> Figure:
    """Each method's points with their spread; the line joins its front, points off it stand alone.

    With `per_method` false every point is on its method's line: for counts, where less is not better.
    """
    with drawing():
        from matplotlib.transforms import ScaledTranslation

        figure = new_figure(6.4, 3.9 + legend_rows(len(methods) + len(published)))
        axes = figure.add_subplot()
        look = looks(methods, (series.method for series in published))
        costs: list[float] = []
        sideways = _sideways(methods, axis)
        for label, found in methods.items():
            priced = sorted((p for p in found if p.cost(axis)), key=lambda p: _cost(p, axis))
            costs += [_cost(point, axis) for point in priced]
            shifted = axes.transData + ScaledTranslation(sideways[label] / 72, 0, figure.dpi_scale_trans)
            _draw_points(axes, label, priced, axis, look[label], shifted)
            line = front(priced, axis) if per_method else priced
            x, y = [_cost(p, axis) for p in line], [100 * p.accuracy.mean for p in line]
            how = look[label]
            axes.plot(x, y, color=how.colour, linestyle=how.line, zorder=2, transform=shifted)
        for series in published:
            x, y = [c for c, _ in series.points], [100 * a for _, a in series.points]
            costs += x
            axes.plot(
                x,
                y,
                color=look[series.method].colour,
                marker=look[series.method].marker,
                markerfacecolor="white",
                linestyle=(0, (1, 3)),
                linewidth=1,
                alpha=0.85,
                label=f"paper: {series.method}",
                zorder=1,
            )
        _finish(axes, costs, axis, title)
        legend_below(figure, axes)
    return figure


def _cost(point: Point, axis: str) -> float:
    found = point.cost(axis)
    assert found is not None
    return found.mean


def _sideways(methods: Mapping[str, Sequence[Point]], axis: str) -> dict[str, float]:
    """How many typographic points to move each method, so that bars at equal costs do not hide each other."""
    rounded = [
        (f"{c.mean:.2g}", label) for label, found in methods.items() for p in found if (c := p.cost(axis))
    ]
    together = {cost for cost, label in rounded if any(c == cost and n != label for c, n in rounded)}
    crowded = list(dict.fromkeys(label for cost, label in rounded if cost in together))
    middle = (len(crowded) - 1) / 2
    return {
        label: SIDEWAYS * (crowded.index(label) - middle) if label in crowded else 0.0 for label in methods
    }


def _draw_points(
    axes: Axes, label: str, points: Sequence[Point], axis: str, look: Look, where: Transform
) -> None:
    costs = [c for p in points if (c := p.cost(axis))]
    bars = [_bar(point) for point in points]
    # Moved points do not count towards the axes' limits: invisible ones at both ends of the bars do.
    for i, sign in enumerate((-1, 1)):
        ends = [100 * p.accuracy.mean + sign * bar[i] for p, bar in zip(points, bars, strict=True)]
        axes.plot([c.mean + sign * c.deviation for c in costs], ends, linestyle="none")
    axes.errorbar(
        [c.mean for c in costs],
        [100 * p.accuracy.mean for p in points],
        xerr=[c.deviation for c in costs] if any(c.deviation for c in costs) else None,
        yerr=list(zip(*bars, strict=True)) if any(len(p.cells) > 1 for p in points) else None,
        markersize=9.5 if look.marker == "*" else None,
        color=look.colour,
        marker=look.marker,
        markeredgecolor="white",
        markeredgewidth=0.6,
        linestyle="none",
        capsize=3,
        elinewidth=1.1,
        label=label,
        zorder=3,
        transform=where,
        # The axis ends at 100 %: a marker there is drawn whole.
        clip_on=False,
    )


def _bar(point: Point) -> tuple[float, float]:
    """How far a point's error bar reaches down and up, in per cent; no accuracy lies outside 0 to 100."""
    mean, deviation = 100 * point.accuracy.mean, 100 * point.accuracy.deviation
    return min(deviation, mean), min(deviation, 100 - mean)


def _finish(axes: Axes, costs: Sequence[float], axis: str, title: str) -> None:
    positive = [cost for cost in costs if cost > 0]
    apart = max(positive) / min(positive) if positive else 1.0
    if axis in COUNTS and apart > 10 * LOGARITHMIC_FROM:
        # A count may be 0, which a logarithm cannot show.
        axes.set_xscale("symlog", linthresh=min(positive))
    elif axis not in COUNTS and apart > LOGARITHMIC_FROM:
        from matplotlib.ticker import LogLocator, NullLocator

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if apart < 300 else (1,)))
        axes.xaxis.set_minor_locator(NullLocator())
    short_ticks(axes.xaxis)
    axes.set_xlabel(({**AXES, **COUNTS})[axis])
    axes.set_ylabel("accuracy (%)")
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), min(high, 100.0))
    axes.set_title(title)
