"""What `privit sweep recipes/mini/all.toml` found, small enough to be kept: docs/results/mini.

    privit sweep recipes/mini/all.toml --jobs 2     about 50 minutes on two idle cores; can be stopped
    python -m benchmarks.mini_results               report.md, its pictures and tables, results.json

`privit report runs/sweeps/mini` makes the same as a page, with pictures that can be enlarged.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from PIL import Image

from privit.report.render.write import FIGURES, MARKDOWN, TABLES, write_report
from privit.runs import write_text

ROOT = Path(__file__).resolve().parents[1]
SWEEP, FOLDER = ROOT / "runs" / "sweeps" / "mini", ROOT / "docs" / "results" / "mini"
COLOURS = 64
KEPT = (
    "experiment",
    "method",
    "seed",
    "accuracy",
    "validation_accuracy",
    "teacher_accuracy",
    "kept",
    "epochs",
)


def cells() -> list[dict[str, Any]]:
    """Every finished cell, without what can be computed again."""
    found = []
    for path in sorted(SWEEP.glob("cells/*/*/*/*/cell.json")):
        cell = json.loads(path.read_text())
        if cell["status"] != "done":
            raise SystemExit(f"{path} is {cell['status']}: {cell.get('error')}")
        row = {key: cell[key] for key in KEPT} | {"budget": cell["budget"]["name"]}
        row["relu_ops"] = cell["cost"]["relu_ops"]
        row["cheetah"] = {
            "sent_bytes": cell["cost"]["spu"]["cheetah"]["wan"]["sent_bytes"],
            "rounds": cell["cost"]["spu"]["cheetah"]["wan"]["rounds"],
            "wan_seconds": round(cell["cost"]["spu"]["cheetah"]["wan"]["seconds"], 2),
        }
        found.append(row | ({"measured": cell["measured"]} if cell["measured"] else {}))
    return found


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of every method and budget of every experiment."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for cell in found:
        groups[cell["experiment"], cell["method"], cell["budget"]].append(cell)
    rows = []
    for (experiment, method, budget), group in groups.items():
        accuracy = [100 * cell["accuracy"] for cell in group]
        lost = [100 * (cell["teacher_accuracy"] - cell["accuracy"]) for cell in group]
        rows.append(
            {
                "experiment": experiment,
                "method": method,
                "budget": budget,
                "seeds": len(group),
                "accuracy": round(statistics.mean(accuracy), 2),
                "deviation": round(statistics.stdev(accuracy), 2) if len(group) > 1 else None,
                "below_teacher": round(statistics.mean(lost), 2),
                "relu_ops": round(statistics.mean(cell["relu_ops"] for cell in group)),
                "cheetah_rounds": round(statistics.mean(cell["cheetah"]["rounds"] for cell in group)),
                "cheetah_wan_seconds": round(statistics.mean(c["cheetah"]["wan_seconds"] for c in group), 1),
            }
        )
    return rows


def main() -> None:
    """Writes the folder anew and prints the summary."""
    found = cells()
    shutil.rmtree(FOLDER, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        write_report(SWEEP, Path(made))
        for folder in (FIGURES, TABLES):
            (FOLDER / folder).mkdir(parents=True)
        for picture in sorted((Path(made) / FIGURES).glob("*.png")):
            Image.open(picture).convert("RGB").quantize(COLOURS).save(
                FOLDER / FIGURES / picture.name, optimize=True
            )
        for table in (Path(made) / TABLES).glob("*.csv"):
            shutil.copy(table, FOLDER / TABLES)
        shutil.copy(Path(made) / MARKDOWN, FOLDER)
    rows = summary(found)
    lines = {"cells": found, "summary": rows}
    written = {name: [json.dumps(line) for line in value] for name, value in lines.items()}
    parts = [f' "{name}": [\n  ' + ",\n  ".join(value) + "\n ]" for name, value in written.items()]
    command = ' "command": "python -m benchmarks.mini_results"'
    write_text(FOLDER / "results.json", "{\n" + ",\n".join([command, *parts]) + "\n}\n")
    for row in rows:
        print(" ".join(str(value) for value in row.values()))


if __name__ == "__main__":
    main()
