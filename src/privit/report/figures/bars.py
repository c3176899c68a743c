"""Groups of bars, told apart by colour and hatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privit.report.figures.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP_WIDTH = 0.82


def grouped_bars(axes: Axes, heights: Mapping[str, Sequence[float]], look: Mapping[str, Look]) -> None:
    """At each place 0, 1, ... a bar per label."""
    width = GROUP_WIDTH / max(len(heights), 1)
    for i, (label, values) in enumerate(heights.items()):
        middle = (i - (len(heights) - 1) / 2) * width
        axes.bar(
            [place + middle for place in range(len(values))],
            values,
            width * 0.94,
            label=label,
            color=look[label].colour,
            hatch=look[label].hatch,
            edgecolor="white",
            linewidth=0.5,
        )
    highest = max((value for values in heights.values() for value in values), default=0.0)
    # With nothing but zeros matplotlib would put the axis in the middle, and negative counts below it.
    axes.set_ylim(0, 1.05 * highest or 1.0)
    axes.grid(visible=False, axis="x")
