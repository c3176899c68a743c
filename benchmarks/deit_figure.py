"""The picture of docs/results/cifar10: accuracy against what one private prediction sends and its rounds.

python benchmarks/deit_figure.py        reads results.json (of deit_cifar10.py), writes two pictures
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from deit_table import NAMES
from matplotlib.figure import Figure

PROTOCOL = "semi2k-benchmark"
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "results" / "cifar10"
LETTERS = "abcdefghijklmnopq"
DENSE = {"dense": "whole model, as commonly written", "dense-rewritten": NAMES["whole"]}
# Okabe and Ito's colours, which the colour-blind tell apart; shapes say the same in print.
FAMILIES = {
    "fitted": ("#0072B2", "o"),
    "capped": ("#CC79A7", "P"),
    "filled": ("#CC79A7", "P"),
    "paper": ("#D55E00", "s"),
    "peer": ("#009E73", "^"),
    "dense": ("#000000", "D"),
}


UP, DOWN, LEFT, RIGHT = (0, 7), (0, -16), (-12, -4), (12, -4)
SIDES = {"fitted": DOWN, "capped": LEFT, "filled": RIGHT, "paper": RIGHT, "peer": RIGHT, "dense": UP}
"""Where a point's letter stands; those of one share and kind that would meet another's are in MOVED."""
MOVED = {"30-10-fitted": UP, "10-snl": UP, "10-paper": DOWN, "10-relu": LEFT, "dense-rewritten": DOWN}


class Point(NamedTuple):
    """One model of the picture."""

    name: str
    family: str
    label: str
    accuracy: float
    megabytes: float
    rounds: float


def points(results: dict[str, Any]) -> list[Point]:
    """Every student that can be served, and the untouched model in its two programs.

    Where a student was not run (`bench`), bytes and rounds are predicted: on SEMI2K that is exact.
    """
    found = []
    for student, parts in results["students"].items():
        if "cost" not in parts or student == "whole" or "refused" in parts["export"]:
            continue
        kind = student.rpartition("-")[2]
        family = kind if kind in FAMILIES else "peer"
        cost = parts.get("bench", parts["cost"][f"{PROTOCOL}/lan/all"])
        found.append(_point(student, family, NAMES[student], parts["export"]["accuracy"], cost))
    known = results["students"]
    costs = next(known[name]["cost"] for name in ("whole", *known) if "cost" in known.get(name, {}))
    for name, label in DENSE.items():
        cost = costs[f"{PROTOCOL}/lan/{name}"]
        found.append(_point(name, "dense", label, results["teacher"]["accuracy"], cost))
    return sorted(found, key=lambda point: -point.accuracy)


def _point(name: str, family: str, label: str, accuracy: float, cost: dict[str, Any]) -> Point:
    return Point(name, family, label, 100 * accuracy, cost["sent_bytes"] / 1e6, cost["rounds"])


def draw(found: list[Point]) -> Figure:
    """Two panels with one accuracy axis; letters name the models, so that near ones can be told apart."""
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    panels = (("megabytes", "MB that one party sends"), ("rounds", "rounds"))
    for axes, (value, label) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for letter, point in zip(LETTERS, found, strict=False):
            colour, marker = FAMILIES[point.family]
            across = getattr(point, value)
            axes.scatter(
                [across],
                [point.accuracy],
                c=colour,
                marker=marker,
                s=48,
                label=f"{letter}  {point.label} ({point.accuracy:.1f} %)",
            )
            axes.annotate(
                letter,
                (across, point.accuracy),
                MOVED.get(point.name, SIDES[point.family]),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
        axes.set_xlim(0, 1.08 * max(getattr(point, value) for point in found))
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("accuracy on 10,000 test images, %")
    lowest, highest = min(p.accuracy for p in found), max(p.accuracy for p in found)
    margin = 0.12 * (highest - lowest)
    figure.axes[0].set_ylim(lowest - margin, min(100.0, highest + margin))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(
        "DeiT-Tiny at 112 px on CIFAR-10, one prediction (semi2k-benchmark, a mode for measuring)"
    )
    return figure


def main() -> None:
    """Draws what results.json has."""
    figure = draw(points(json.loads((FOLDER / "results.json").read_text())))
    for ending in ("png", "svg"):
        figure.savefig(FOLDER / f"accuracy-cost.{ending}", dpi=150)


if __name__ == "__main__":
    main()
