"""Accuracy over GELU and softmax budgets, with lines of equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privit.report.cells import AXES, Point
from privit.report.figures.style import drawing, new_figure, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = 4
"""How many lines of equal cost are drawn."""


@dataclass(frozen=True)
class Grid:
    """Accuracy (per cent) and cost over two budgets; NaN where no model was trained.

    Rows follow `gelu`, columns follow `softmax`.
    """

    gelu: list[float]
    softmax: list[float]
    accuracy: np.ndarray
    deviation: np.ndarray
    cost: np.ndarray


def grid_of(points: Sequence[Point], axis: str) -> Grid:
    """The grid that the points' budgets span."""
    budgets = [(p.first.asked.get("gelu"), p.first.asked.get("softmax")) for p in points]
    gelu = sorted({g for g, s in budgets if g is not None and s is not None})
    softmax = sorted({s for g, s in budgets if g is not None and s is not None})
    accuracy, deviation, cost = (np.full((len(gelu), len(softmax)), np.nan) for _ in range(3))
    for point, (g, s) in zip(points, budgets, strict=True):
        if g is None or s is None:
            continue
        at = gelu.index(g), softmax.index(s)
        accuracy[at] = 100 * point.accuracy.mean
        deviation[at] = 100 * point.accuracy.deviation
        price = point.cost(axis)
        cost[at] = price.mean if price else np.nan
    return Grid(gelu, softmax, accuracy, deviation, cost)


def draw_grid(grid: Grid, axis: str, title: str) -> Figure:
    """A cell per pair of budgets with its accuracy written in it; dashed lines join equal costs."""
    with drawing():
        rows, columns = grid.accuracy.shape
        figure = new_figure(max(5.0, 1.7 + 0.85 * columns), max(3.4, 1.5 + 0.58 * rows))
        axes = figure.add_subplot()
        axes.grid(visible=False)
        axes.set_facecolor("#EEEEEE")
        shown = axes.imshow(
            np.ma.masked_invalid(grid.accuracy), cmap="cividis", origin="lower", aspect="auto"
        )
        figure.colorbar(shown, ax=axes, label="accuracy (%)", pad=0.02)
        _write_numbers(axes, grid)
        _equal_costs(axes, grid)
        axes.set_xticks(range(columns), [short(value) for value in grid.softmax])
        axes.set_yticks(range(rows), [short(value) for value in grid.gelu])
        axes.set_xlabel("softmax sites kept")
        axes.set_ylabel("GELU sites kept")
        axes.set_title(title)
        figure.supxlabel(f"dashed: equal {AXES[axis]}", fontsize=9, x=0.02, ha="left", color="#444444")
    return figure


def _write_numbers(axes: Axes, grid: Grid) -> None:
    low, high = np.nanmin(grid.accuracy), np.nanmax(grid.accuracy)
    for (row, column), accuracy in np.ndenumerate(grid.accuracy):
        if np.isnan(accuracy):
            axes.text(column, row, "not run", ha="center", va="center", fontsize=8, color="#666666")
            continue
        dark = accuracy < (low + high) / 2
        spread = f"\n±{grid.deviation[row, column]:.1f}" if grid.deviation[row, column] else ""
        axes.text(
            column,
            row,
            f"{accuracy:.1f}{spread}",
            ha="center",
            va="center",
            fontsize=8.5,
            color="white" if dark else "black",
        )


def _equal_costs(axes: Axes, grid: Grid) -> None:
    if min(grid.cost.shape) < 2 or np.isnan(grid.cost).any() or np.ptp(grid.cost) == 0:
        return
    levels = np.quantile(grid.cost, np.linspace(0, 1, LINES + 2)[1:-1])
    lines = axes.contour(
        grid.cost, levels=np.unique(levels), colors="#D55E00", linestyles="dashed", linewidths=1.4
    )
    axes.clabel(lines, fmt=short, fontsize=8.5, inline=True)
