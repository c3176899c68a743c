"""What each layer kept: bars per layer, a panel per kind, and one of tokens where these differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from privit.report.figures.bars import grouped_bars
from privit.report.figures.style import drawing, legend_below, legend_rows, looks, new_figure, short_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"gelu": "GELU", "softmax": "softmax"}
TITLES = {"norm": "exact LayerNorms (the last layer's with the final one)", "tokens": "tokens"}
PANEL_HEIGHT = 2.4


def draw_layers(
    kept: Mapping[str, Mapping[str, Sequence[float]]], units: Mapping[str, str], known: Iterable[str] = ()
) -> Figure:
    """`kept` is kind, then label, then mean count per layer; `units` say what a site of a kind is.

    `known` are the labels of all pictures of an experiment, so that a method looks the same in each.
    """
    with drawing():
        labels = list(dict.fromkeys(label for found in kept.values() for label in found))
        look = looks(known, labels)
        figure = new_figure(6.8, PANEL_HEIGHT * len(kept) + 0.4 + legend_rows(len(labels)))
        panels = figure.subplots(len(kept), 1, squeeze=False)[:, 0]
        for axes, (kind, found) in zip(panels, kept.items(), strict=True):
            grouped_bars(axes, found, look)
            depth = max(len(counts) for counts in found.values())
            axes.set_xticks(range(depth), [str(layer + 1) for layer in range(depth)])
            axes.set_title(TITLES.get(kind, f"{NAMES.get(kind, kind)} {units.get(kind, 'site')}s kept"))
            axes.set_ylabel("per layer")
            short_ticks(axes.yaxis)
        panels[-1].set_xlabel("layer")
        legend_below(figure, panels[0])
    return figure
