"""Predicted against measured: every program a dot, on the diagonal if the prediction is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from privit.report.figures.style import drawing, legend_below, looks, new_figure, short_ticks
from privit.report.read.cells import AXES, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_predicted(measured: Sequence[Measured]) -> Figure:
    """A panel per quantity, a marker per protocol."""
    with drawing():
        quantities = list(dict.fromkeys(entry.quantity for entry in measured))
        look = looks(dict.fromkeys(entry.protocol for entry in measured))
        figure = new_figure(3.5 * len(quantities) + 0.3, 4.0)
        panels = figure.subplots(1, len(quantities), squeeze=False)[0]
        for axes, quantity in zip(panels, quantities, strict=True):
            found = [entry for entry in measured if entry.quantity == quantity]
            ends = [value for entry in found for value in (entry.measured, entry.predicted) if value > 0]
            low, high = min(ends) / 1.5, max(ends) * 1.5
            axes.plot([low, high], [low, high], color="#888888", linewidth=1, zorder=1)
            for protocol, how in look.items():
                own = [entry for entry in found if entry.protocol == protocol]
                axes.plot(
                    [entry.measured for entry in own],
                    [entry.predicted for entry in own],
                    color=how.colour,
                    marker=how.marker,
                    markeredgecolor="white",
                    markeredgewidth=0.6,
                    linestyle="none",
                    label=protocol,
                    zorder=2,
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlim(low, high)
            axes.set_ylim(low, high)
            axes.set_aspect("equal")
            _few_ticks(axes, high / low)
            axes.set_title(AXES.get(quantity, quantity))
            axes.set_xlabel("measured")
        panels[0].set_ylabel("predicted")
        legend_below(figure, panels[0])
    return figure


def _few_ticks(axes: Axes, span: float) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1,) if span > 100 else (1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        short_ticks(axis)
