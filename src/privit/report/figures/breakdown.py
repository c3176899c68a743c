"""What a prediction's ReLUOps are spent on: one stacked bar per model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from privit.report.figures.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    Look,
    drawing,
    legend_below,
    new_figure,
    short,
    short_ticks,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {
    "gelu": ("exact GELUs", Look(BLUE, "", "", "")),
    "softmax": ("exact softmaxes", Look(ORANGE, "", "", "///")),
    "stand_ins": ("stand-ins", Look(GREEN, "", "", "...")),
    "layer_norm": ("LayerNorm", Look(PURPLE, "", "", "xxx")),
}
"""Names as in `privit.cost.estimate.PARTS`."""


def draw_breakdown(costs: Mapping[str, Mapping[str, float]]) -> Figure:
    """`costs` is label, then part, then ReLUOps; the total stands at the end of each bar."""
    with drawing():
        figure = new_figure(6.8, 1.3 + 0.36 * len(costs))
        axes = figure.add_subplot()
        labels = list(costs)
        ends = [0.0] * len(labels)
        for part, (name, look) in PARTS.items():
            lengths = [costs[label].get(part, 0.0) for label in labels]
            axes.barh(
                range(len(labels)),
                lengths,
                0.66,
                left=ends,
                label=name,
                color=look.colour,
                hatch=look.hatch,
                edgecolor="white",
                linewidth=0.5,
            )
            ends = [end + length for end, length in zip(ends, lengths, strict=True)]
        for place, end in enumerate(ends):
            axes.text(end, place, f"  {short(end)}", va="center", fontsize=9)
        axes.set_xlim(0, 1.12 * max(ends, default=1.0) or 1.0)
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("ReLUOps of one prediction (estimated)")
        short_ticks(axes.xaxis)
        legend_below(figure, axes, columns=4)
    return figure
