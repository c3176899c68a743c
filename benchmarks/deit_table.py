"""The page of docs/results/cifar10: every student's accuracy, in the clear and under MPC, and its cost.

python benchmarks/deit_table.py        reads results.json (of deit_cifar10.py), writes README.md beside it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privit.runs import write_text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "results" / "cifar10"
BENCHMARK = "semi2k-benchmark"
NAMES = {
    "whole": "whole model, with privit's rewrites",
    "50-fitted": "PriViT, 50 % + 50 %, fitted stand-ins",
    "30-10-fitted": "PriViT, 30 % + 10 %, fitted stand-ins",
    "10-fitted": "PriViT, 10 % + 10 %, fitted stand-ins",
    "50-paper": "PriViT, 50 % + 50 %, the paper's stand-ins",
    "30-10-paper": "PriViT, 30 % + 10 %, the paper's stand-ins",
    "10-paper": "PriViT, 10 % + 10 %, the paper's stand-ins",
    "10-filled": "by bytes and seconds, filled up to 10 % + 10 %",
    "10-capped": "by bytes and seconds",
    "0-fitted": "none exact, fitted stand-ins",
    "0-paper": "none exact, the paper's stand-ins",
    "10-snl": "SNL, 10 % of the GELUs",
    "10-relu": "PriViT-R, 10 % + 10 %",
    "mpcformer": "MPCFormer",
}
"""Students in the order of the tables, by how they are called there."""
HEAD = """# DeiT-Tiny at 112 px on CIFAR-10

Made by `python benchmarks/deit_table.py` from results.json. {data}; the teacher is right on {teacher:.2f} %
of the test images. Accuracy is of all 10,000 test images in the clear. All from one seed.

    python benchmarks/fitted_teacher.py          # the teacher: 4 epochs
    python benchmarks/fitted_training.py         # PriViT, both kinds of stand-in: 5 epochs of search and 3
    python benchmarks/cost_budget.py --on deit   # by bytes and seconds: chosen without training, 3 epochs
    python benchmarks/deit_cifar10.py            # the peers; exports, costs and asks every student privately
    python benchmarks/deit_figure.py             # accuracy-cost.png
    python benchmarks/deit_table.py              # this page

Every command can be stopped and goes on where it stopped. Bytes and rounds are of the party that has more.

![Accuracy against MB sent and against rounds](accuracy-cost.png)
"""


def kept(parts: Mapping[str, Any]) -> str:
    """Exact sites of both kinds, of how many."""
    shown = parts["export"]
    return " + ".join(f"{sum(shown['kept'][kind]):,}/{shown['sites'][kind]:,}" for kind in shown["sites"])


def accuracies(results: Mapping[str, Any]) -> list[list[str]]:
    """A row for each student: accuracy in the clear and under MPC, and how often both say the same."""
    rows = []
    for student, parts in _students(results):
        row = [NAMES[student], kept(parts), f"{100 * parts['export']['accuracy']:.2f} %"]
        missing = "cannot be served" if "refused" in parts["export"] else ""
        for part in ("simulated", "private", "private3"):
            row.append(_agreement(parts[part]) if part in parts else missing)
        rows.append(row)
    return rows


def _agreement(figures: Mapping[str, Any]) -> str:
    images = figures["images"]
    same, right = round(figures["agreement"] * images), round(figures["accuracy"] * images)
    return f"{same} of {images} ({right} right)"


def measured(results: Mapping[str, Any], part: str) -> list[list[str]]:
    """What a benchmark measured: each student next to the untouched model in the same run."""
    rows = []
    for student, parts in _students(results):
        if part not in parts:
            continue
        figures = parts[part]
        rows.append([NAMES[student], *_cost(figures)])
        for name in ("dense", "dense-rewritten"):
            other = figures[name]
            ratios = [figures[key] / other[key] for key in ("sent_bytes", "rounds", "seconds")]
            rows[-1].append(" / ".join(f"{ratio:.3f}" for ratio in ratios))
    return rows


def predicted(results: Mapping[str, Any]) -> list[list[str]]:
    """What `privit cost` says of every student, and of the untouched model."""
    rows = []
    whole = next(parts["cost"] for _, parts in _students(results) if "cost" in parts)
    for student, parts in _students(results):
        if "cost" in parts:
            costs = parts["cost"]
            counted = [f"{costs['paper'] / 1e6:.1f} M", f"{costs['circuits'] / 1e6:,.0f} M"]
            rows.append([NAMES[student], *counted, *_networks(costs, "all")])
    rows.append(["whole model, as commonly written", "", "", *_networks(whole, "dense")])
    return rows


def _networks(costs: Mapping[str, Any], graph: str) -> list[str]:
    shown = []
    for protocol in (BENCHMARK, "aby3", "cheetah"):
        figures = {network: costs[f"{protocol}/{network}/{graph}"] for network in ("lan", "wan")}
        lan, wan = figures["lan"], figures["wan"]
        megabytes = f"{lan['sent_bytes'] / 1e6:,.1f} MB"
        shown.append(f"{megabytes}, {lan['rounds']:,.0f}; {lan['seconds']:.0f} / {wan['seconds']:.0f} s")
    return shown


def processes(results: Mapping[str, Any]) -> list[list[str]]:
    """Queries between real processes on the private protocols."""
    rows = []
    for student, parts in _students(results):
        for part in ("private", "private3"):
            if part in parts:
                protocol = parts[part]["protocol"]
                busy = " (busy machine)" if parts[part].get("busy") else ""
                *counted, seconds = _cost(parts[part])
                rows.append([NAMES[student], protocol, *counted, seconds + busy])
    return rows


def _cost(figures: Mapping[str, Any]) -> list[str]:
    megabytes = f"{figures['sent_bytes'] / 1e6:,.1f} MB"
    return [megabytes, f"{figures['rounds']:,.0f}", f"{figures['seconds']:.1f} s"]


def _students(results: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    found = results["students"]
    return [(student, found[student]) for student in NAMES if student in found]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    head = HEAD.format(teacher=100 * results["teacher"]["accuracy"], data=results["data"])
    under = ["semi2k-benchmark, simulated (not private)", "cheetah, two processes", "aby3, three processes"]
    shares = "bytes / rounds / seconds, of {}"
    against = [shares.format("dense"), shares.format("dense-rewritten")]
    parts = [
        head,
        "## Accuracy, and agreement with the clear under MPC\n",
        table(["student", "exact GELU tokens + softmax rows", "accuracy", *under], accuracies(results)),
        "## Measured on semi2k-benchmark (not private), each beside the untouched model in one run\n\n"
        "With `OMP_THREAD_LIMIT=1` ([engine.md](../../engine.md), Threads), all parties in one process.\n",
        table(["student", "sent", "rounds", "seconds", *against], measured(results, "bench")),
    ]
    if timed := measured(results, "timed"):
        parts += [
            "## Measured on cheetah, simulated, beside the untouched model in one run\n",
            table(["student", "sent", "rounds", "seconds", *against], timed),
        ]
    parts += [
        "## Asked on private protocols, between processes of one machine with two cores\n",
        table(["student", "protocol", "sent", "rounds", "seconds"], processes(results)),
        "## Predicted (`privit cost`): ReLUOps, AND gates; sent, rounds; seconds over LAN / WAN\n",
        table(["student", "ReLUOps", "AND gates", BENCHMARK, "aby3", "cheetah"], predicted(results)),
    ]
    return "\n".join(parts)


def main() -> None:
    """Writes the page of what results.json has."""
    write_text(FOLDER / "README.md", page(json.loads((FOLDER / "results.json").read_text())))


if __name__ == "__main__":
    main()
