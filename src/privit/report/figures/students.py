"""Accuracy against bytes and rounds, a letter for every model: names would run into each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from string import ascii_lowercase
from typing import TYPE_CHECKING

from privit.report.figures.style import drawing, legend_rows, looks, new_figure, short_ticks
from privit.report.read.cells import AXES, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AWAY = 9.0
"""Typographic points between a marker and its letter, and at least between letters and other markers."""
SIDES = ((0, 1), (0, -1), (1, 0), (-1, 0), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8), (-0.8, -0.8))


def letters(count: int) -> list[str]:
    """As many different letters, then pairs of them."""
    pairs = ("".join(pair) for pair in product(ascii_lowercase, repeat=2))
    return [*ascii_lowercase, *pairs][:count]


def draw_students(points: Sequence[Point], axes_shown: Sequence[str], title: str) -> Figure:
    """A panel for each cost with one accuracy axis; the legend has every model by its letter."""
    with drawing():
        figure = new_figure(5.0 * len(axes_shown), 4.4 + legend_rows(len(points), 2))
        panels = figure.subplots(1, len(axes_shown), sharey=True, squeeze=False)[0]
        look = looks(dict.fromkeys(point.first.label for point in points))
        named = dict(zip(letters(len(points)), points, strict=True))
        for panel, axis in zip(panels, axes_shown, strict=True):
            for letter, point in named.items():
                how, cost = look[point.first.label], point.cost(axis)
                said = f"{letter}  {point.first.student_label} ({100 * point.accuracy.mean:.1f} %)"
                panel.errorbar(
                    [cost.mean if cost else math.nan],
                    [100 * point.accuracy.mean],
                    yerr=[100 * point.accuracy.deviation] if len(point.cells) > 1 else None,
                    color=how.colour,
                    marker=how.marker,
                    markeredgecolor="white",
                    linestyle="none",
                    capsize=3,
                    label=said,
                    zorder=3,
                )
            panel.set_xlim(0, 1.08 * max(cost.mean for p in points if (cost := p.cost(axis))))
            panel.set_xlabel(AXES[axis])
            short_ticks(panel.xaxis)
        _limits(panels[0], points)
        panels[0].set_ylabel("accuracy (%)")
        figure.suptitle(title)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figure.draw_without_rendering()
        for panel, axis in zip(panels, axes_shown, strict=True):
            _name(panel, axis, named)
    return figure


def _limits(panel: Axes, points: Sequence[Point]) -> None:
    ends = [100 * p.accuracy.mean + sign * 100 * p.accuracy.deviation for p in points for sign in (-1, 1)]
    margin = max(0.12 * (max(ends) - min(ends)), 1.0)
    panel.set_ylim(max(0.0, min(ends) - margin), min(100.0, max(ends) + margin))


def _name(panel: Axes, axis: str, named: Mapping[str, Point]) -> None:
    """Puts each letter on the side of its marker where it is furthest from everything else."""
    places = {
        letter: (cost.mean, 100 * point.accuracy.mean)
        for letter, point in named.items()
        if (cost := point.cost(axis))
    }
    figure = panel.get_figure(root=True)
    assert figure is not None
    scale = 72 / figure.dpi
    markers = {n: tuple(scale * v for v in panel.transData.transform(place)) for n, place in places.items()}
    taken: list[tuple[float, ...]] = []
    for letter, (x, y) in markers.items():
        others = [place for other, place in markers.items() if other != letter]
        sides = {side: (x + AWAY * side[0], y + AWAY * side[1]) for side in SIDES}
        room = {
            side: min((math.dist(place, other) for other in [*others, *taken]), default=AWAY)
            for side, place in sides.items()
        }
        best = next((side for side in SIDES if room[side] >= AWAY), max(SIDES, key=lambda s: room[s]))
        taken.append(sides[best])
        panel.annotate(
            letter,
            places[letter],
            (AWAY * best[0], AWAY * best[1]),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
        )
