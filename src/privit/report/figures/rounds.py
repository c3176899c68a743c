"""Where the rounds of a prediction are: bars per layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from privit.report.figures.bars import grouped_bars
from privit.report.figures.style import drawing, legend_below, legend_rows, looks, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_rounds(rounds: Mapping[str, Mapping[str, float]], protocol: str) -> Figure:
    """`rounds` is label, then segment of the program, then how many."""
    with drawing():
        segments = list(dict.fromkeys(name for found in rounds.values() for name in found))
        figure = new_figure(6.8, 3.0 + legend_rows(len(rounds)))
        axes = figure.add_subplot()
        heights = {label: [found.get(s, 0) for s in segments] for label, found in rounds.items()}
        grouped_bars(axes, heights, looks(rounds))
        axes.set_xticks(range(len(segments)), [_segment(name) for name in segments])
        axes.set_xlabel("layer")
        axes.set_ylabel("rounds")
        axes.set_title(f"Rounds by layer, {protocol} (estimated)")
        legend_below(figure, axes)
    return figure


def _segment(name: str) -> str:
    """Layers as numbers from 1, as everywhere in the report; other segments by name."""
    word, _, number = name.partition(" ")
    return str(int(number) + 1) if word == "layer" and number.isdigit() else name
