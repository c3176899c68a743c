"""Accuracy over GELU and softmax budgets, with lines of equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privit.report.figures.style import RED, drawing, new_figure, short
from privit.report.read.cells import AXES, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = 3
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
    from matplotlib.patheffects import withStroke

    low, high = np.nanmin(grid.accuracy), np.nanmax(grid.accuracy)
    for (row, column), accuracy in np.ndenumerate(grid.accuracy):
        if np.isnan(accuracy):
            axes.text(column, row, "not run", ha="center", va="center", fontsize=8, color="#666666")
            continue
        ink, halo = ("white", "#333333") if accuracy < (low + high) / 2 else ("black", "#EEEEEE")
        spread = f"\n±{grid.deviation[row, column]:.1f}" if grid.deviation[row, column] else ""
        axes.text(
            column,
            row,
            f"{accuracy:.1f}{spread}",
            ha="center",
            va="center",
            fontsize=8.5,
            color=ink,
            path_effects=[withStroke(linewidth=2, foreground=halo)],
            zorder=5,
        )


def _equal_costs(axes: Axes, grid: Grid) -> None:
    """Lines from border to border, each with its cost where it leaves."""
    if min(grid.cost.shape) < 2 or np.isnan(grid.cost).any() or np.ptp(grid.cost) == 0:
        return
    from matplotlib.patheffects import withStroke

    rows, columns = grid.cost.shape
    x, y = (np.concatenate([[-0.5], np.arange(n), [n - 0.5]]) for n in (columns, rows))
    # Between two costs that occur, so that no line runs through the middle of a cell.
    known = np.unique(grid.cost)
    between = (known[1:] + known[:-1]) / 2
    levels = np.unique(np.quantile(between, np.linspace(0, 1, LINES + 2)[1:-1], method="nearest"))
    lines = axes.contour(
        x, y, _to_the_borders(grid.cost), levels=levels, colors=RED, linestyles="dashed", linewidths=1.5
    )
    lines.set_path_effects([withStroke(linewidth=3, foreground="white")])
    for level, segments in zip(levels, lines.allsegs, strict=True):
        if segments:
            end = max(np.concatenate(segments), key=lambda place: (place[0], -place[1]))
            place = np.clip(end, [0.0, -0.36], [columns - 0.78, rows - 1.0])
            frame = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": RED, "linewidth": 0.7}
            axes.text(
                place[0],
                place[1],
                short(level),
                ha="center",
                va="center",
                fontsize=7.5,
                color=RED,
                bbox=frame,
            )
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(-0.5, rows - 0.5)


def _to_the_borders(cost: np.ndarray) -> np.ndarray:
    """The costs with half a cell more on each side, continued straight on."""
    for axis in (0, 1):
        first, second = cost.take([0], axis), cost.take([1], axis)
        last, before = cost.take([-1], axis), cost.take([-2], axis)
        cost = np.concatenate([1.5 * first - 0.5 * second, cost, 1.5 * last - 0.5 * before], axis)
    return cost
