"""Where the rounds of a prediction are: bars per layer, for all of it and for each kind alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privit.report.figures.bars import grouped_bars
from privit.report.figures.style import drawing, legend_below, legend_rows, looks, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL_HEIGHT = 2.1
TITLES = {"softmax": "attention alone (softmax)", "gelu": "MLP alone (GELU)"}
"""What of a layer each kind's choice decides; its LayerNorms cost the same whatever is kept."""

Kinds = Mapping[str, Sequence[float]]


def draw_rounds(
    rounds: Mapping[str, Mapping[str, float]], kinds: Mapping[str, Kinds], protocol: str
) -> Figure:
    """`rounds` is label, then segment of the program, then how many; `kinds` label, kind, layer by layer.

    A label without kinds (the model as written) has no bar in their panels.
    """
    with drawing():
        segments = list(dict.fromkeys(name for found in rounds.values() for name in found))
        layers = [name for name in segments if _segment(name) != name]
        shown = [kind for kind in TITLES if any(kind in found for found in kinds.values())]
        figure = new_figure(6.8, PANEL_HEIGHT * (1 + len(shown)) + 0.6 + legend_rows(len(rounds)))
        panels = figure.subplots(1 + len(shown), 1, squeeze=False)[:, 0]
        look = looks(rounds)
        grouped_bars(panels[0], {label: [f.get(s, 0) for s in segments] for label, f in rounds.items()}, look)
        panels[0].set_xticks(range(len(segments)), [_segment(name) for name in segments])
        panels[0].set_title(f"Rounds by layer, {protocol} (estimated)")
        before = segments.index(layers[0]) if layers else 0
        for axes, kind in zip(panels[1:], shown, strict=True):
            # As many places as above, so that a layer stands below itself.
            blank, after = [0.0] * before, [0.0] * (len(segments) - before - len(layers))
            heights = {
                label: [*blank, *kinds.get(label, {}).get(kind, [0.0] * len(layers)), *after]
                for label in rounds
            }
            grouped_bars(axes, heights, look)
            axes.set_xticks(range(before, before + len(layers)), [_segment(name) for name in layers])
            axes.set_xlim(panels[0].get_xlim())
            axes.set_title(f"Of these, {TITLES[kind]}")
        for axes in panels:
            axes.set_ylabel("rounds")
        panels[-1].set_xlabel("layer")
        legend_below(figure, panels[0])
    return figure


def _segment(name: str) -> str:
    """Layers as numbers from 1, as everywhere in the report; other segments by name."""
    word, _, number = name.partition(" ")
    return str(int(number) + 1) if word == "layer" and number.isdigit() else name
