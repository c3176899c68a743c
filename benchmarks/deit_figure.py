"""The picture of docs/results/cifar10: accuracy against what one private prediction sends and its rounds.

python benchmarks/deit_figure.py        reads results.json (of deit_cifar10.py), writes two pictures
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

PROTOCOL = "semi2k-benchmark"
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "results" / "cifar10"
DENSE = {"dense": "whole model,\nas commonly written", "dense-rewritten": "whole model,\nprivit's rewrites"}
# Okabe and Ito's colours, which the colour-blind tell apart; shapes say the same in print.
FAMILIES = {
    "fitted": ("#0072B2", "o", "PriViT, fitted stand-ins"),
    "capped": ("#CC79A7", "P", "a budget in bytes and seconds"),
    "paper": ("#D55E00", "s", "PriViT, the paper's stand-ins"),
    "peer": ("#009E73", "^", "peers"),
    "dense": ("#000000", "D", "every GELU and softmax exact"),
}
NAMES = {
    "0": "none exact",
    "10": "10 % + 10 %",
    "30-10": "30 % + 10 %",
    "10-relu": "PriViT-R, 10 % + 10 %",
    "10-snl": "SNL, 10 % of GELUs",
    "mpcformer": "MPCFormer",
}


class Point(NamedTuple):
    """One model of the picture."""

    family: str
    label: str
    accuracy: float
    megabytes: float
    rounds: float


def points(results: dict[str, Any]) -> list[Point]:
    """Every student that was trained and costed, and the untouched model in its two programs.

    Where a student was not run (`bench`), bytes and rounds are predicted: on SEMI2K that is exact.
    """
    found = []
    for student, parts in results["students"].items():
        if "cost" not in parts:
            continue
        share, _, kind = student.rpartition("-")
        family = kind if kind in ("fitted", "capped", "paper") else "peer"
        label = NAMES[share if family != "peer" else student]
        cost = parts.get("bench", parts["cost"][f"{PROTOCOL}/lan/all"])
        found.append(_point(family, label, parts["export"]["accuracy"], cost))
    first = next(parts["bench"] for parts in results["students"].values() if "bench" in parts)
    for name, label in DENSE.items():
        found.append(_point("dense", label, results["teacher"]["accuracy"], first[name]))
    return found


def _point(family: str, label: str, accuracy: float, cost: dict[str, Any]) -> Point:
    return Point(family, label, 100 * accuracy, cost["sent_bytes"] / 1e6, cost["rounds"])


def draw(found: list[Point]) -> Figure:
    """Two panels with one accuracy axis."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    for axes, (value, label) in zip(
        figure.subplots(1, 2, sharey=True),
        (("megabytes", "MB that one party sends"), ("rounds", "rounds")),
        strict=True,
    ):
        for family, (colour, marker, name) in FAMILIES.items():
            shown = [point for point in found if point.family == family]
            if not shown:
                continue
            across = [getattr(point, value) for point in shown]
            axes.scatter(across, [p.accuracy for p in shown], c=colour, marker=marker, s=48, label=name)
            for x, point in zip(across, shown, strict=True):
                axes.annotate(
                    point.label,
                    (x, point.accuracy),
                    (6, -4),
                    textcoords="offset points",
                    fontsize=8,
                    va="top",
                )
        axes.set_xlim(0, 1.25 * max(getattr(point, value) for point in found))
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("accuracy on 10,000 test images, %")
    figure.axes[0].set_ylim(top=min(100.0, max(p.accuracy for p in found) + 4))
    figure.axes[1].legend(fontsize=8, loc="lower right")
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
