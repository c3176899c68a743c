"""What each class loses: a dot per class, a row per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from privit.report.figures.style import BLUE, RED, drawing, legend_below, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_classes(losses: Mapping[str, Sequence[float]]) -> Figure:
    """`losses` is label, then accuracy that each class loses against the teacher, as shares of 1."""
    with drawing():
        figure = new_figure(6.8, 1.4 + 0.4 * len(losses))
        axes = figure.add_subplot()
        axes.axvline(0, color="#888888", linewidth=1)
        for row, values in enumerate(losses.values()):
            found = 100 * np.asarray(values, dtype=float)
            # Equal losses are common with few test images: a fixed fan keeps every class visible.
            fan = 0.28 * (np.arange(len(found)) % 5 - 2) / 2 if len(found) > 1 else np.zeros(1)
            last = row == 0
            axes.plot(
                found,
                row + fan,
                marker="o",
                markersize=4.5,
                color=BLUE,
                alpha=0.7,
                linestyle="none",
                label="a class" if last else None,
            )
            axes.plot(
                [found.mean()],
                [row],
                marker="D",
                color=RED,
                markeredgecolor="white",
                linestyle="none",
                label="mean" if last else None,
            )
        axes.set_yticks(range(len(losses)), list(losses))
        axes.set_ylim(len(losses) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("accuracy lost against the teacher (points; right of 0 is worse)")
        legend_below(figure, axes)
    return figure
