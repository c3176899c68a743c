"""Where a query's seconds go: layer after layer, what each party computes, and which operations take it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from privit.report.figures.style import GREY, drawing, legend_below, looks, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 6
"""Operations that have a colour of their own; what is left stands together."""
OTHER, WAITING = "everything else", "waiting"


def draw_timeline(result: Mapping[str, Any]) -> Figure:
    """The time line of what `privit bench` measured; a row for each party and one for the operations.

    Within a layer operations stand by their sums, from most to least, and not in the order of the program:
    the engine logs no more.
    """
    layers = result["layers"]
    names = _largest(layers)
    with drawing():
        figure = new_figure(9.0, 3.2)
        axes = figure.add_subplot()
        parties = [party["name"] for party in layers[0]["parties"]]
        start = 0.0
        for layer in layers:
            _party_bars(axes, layer, start)
            _operation_bars(axes, layer, start, names, len(parties))
            start += layer["seconds"]
            axes.axvline(start, color=GREY, linewidth=0.4)
        axes.set_yticks(range(len(parties) + 1), [*parties, "operations"])
        axes.invert_yaxis()
        axes.set_xlim(0, start or 1.0)
        axes.set_xlabel(f"seconds of one query on {result['protocol']} ({result['measured_on']})")
        middles = _middles(layers)
        axes.secondary_xaxis("top").set_xticks(
            middles, [_short(layer["name"]) for layer in layers], fontsize=7
        )
        axes.grid(visible=False)
        legend_below(figure, axes, columns=4)
    return figure


def _party_bars(axes: Axes, layer: Mapping[str, Any], start: float) -> None:
    for place, party in enumerate(layer["parties"]):
        computing = min(party["computing_seconds"], layer["seconds"])
        labels = ("computing", WAITING) if start == 0.0 and place == 0 else (None, None)
        axes.barh(place, computing, 0.6, left=start, color="#4D4D4D", label=labels[0])
        rest = layer["seconds"] - computing
        axes.barh(place, rest, 0.6, left=start + computing, color="#D9D9D9", hatch="///", label=labels[1])


def _operation_bars(
    axes: Axes, layer: Mapping[str, Any], start: float, names: Sequence[str], place: int
) -> None:
    look, left = looks([*names, OTHER]), start
    spent: dict[str, float] = defaultdict(float)
    for name, entry in layer["operations"].items():
        spent[name if name in names else OTHER] += entry["seconds"]
    known = axes.get_legend_handles_labels()[1]
    for name in sorted(spent, key=lambda each: (each == OTHER, -spent[each])):
        label = None if name in known else name
        axes.barh(
            place, spent[name], 0.6, left=left, color=look[name].colour, hatch=look[name].hatch, label=label
        )
        left += spent[name]


def _largest(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    total: dict[str, float] = defaultdict(float)
    for layer in layers:
        for name, entry in layer["operations"].items():
            total[name] += entry["seconds"]
    return sorted(total, key=lambda name: -total[name])[:SHOWN]


def _middles(layers: Sequence[Mapping[str, Any]]) -> list[float]:
    ends, end = [], 0.0
    for layer in layers:
        ends.append(end + layer["seconds"] / 2)
        end += layer["seconds"]
    return ends


def _short(name: str) -> str:
    return name.removeprefix("layer ")
