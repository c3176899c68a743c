"""How much a fit repairs before any training: GELU tokens kept at random, and softmax replaced by layers.

    python -m benchmarks.fitted_tables TEACHER [--images 2000] [--fit-images 512] [--ablation]

TEACHER is a run of `privit teacher`; for docs/results the one of recipes/cifar10/deit.toml. Columns: the
paper's stand-ins as they are, and fitted ones. With --ablation also `parameters alone`: without solving
the linear layer behind them, and with every token counting the same.
Each cell is kept as it is finished, so that an interrupted command goes on; the end is docs/results/
fitted-tables.json.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from privit.data.datasets import Split, preprocess_split
from privit.plan import Plan, plan_from_kept
from privit.runs import load_run, write_text
from privit.spec import Granularity, Spec
from privit.train.fitting.fit import FitConfig, fit, fit_images
from privit.train.loop.batches import Images
from privit.train.stages import Model, planned_student, read_model
from privit.train.training_free import accuracy

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "fitted-tables.json"
KEPT_TOKENS = (45, 25, 5, 0)
MEMORY_BYTES = 4 << 30
ALONE = FitConfig(refit=False, weighting="uniform")
FITTED = FitConfig()


@dataclass(frozen=True)
class Cell:
    """One figure of a table: a plan's keeping and stand-in, and how the stand-in is fitted (None: not)."""

    table: str
    row: str
    column: str
    plan: Plan
    fit: FitConfig | None


def main() -> None:
    """Measures every cell that is not yet measured and prints the result as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("teacher", type=Path, help="the run of a teacher")
    parser.add_argument("--images", type=int, default=2000, help="test images")
    parser.add_argument("--fit-images", type=int, default=512, help="training images of a fit")
    parser.add_argument("--ablation", action="store_true")
    arguments = parser.parse_args()
    model = read_model(load_run(arguments.teacher, "teacher"))
    data = model.subject.load()
    test = Images(_first(data.test, arguments.images), model.subject.preprocessing, MEMORY_BYTES)
    chosen = fit_images(len(data.train), replace(FITTED, images=arguments.fit_images))
    pixels = preprocess_split(data.train, model.subject.preprocessing, chosen)
    notes = arguments.teacher / f"tables-{arguments.images}-{arguments.fit_images}.json"
    done: dict[str, Any] = json.loads(notes.read_text()) if notes.is_file() else {}
    if "teacher" not in done:
        done["teacher"] = {"accuracy": accuracy(model.student(), test)}
    for cell in cells(model.subject.spec, arguments.ablation):
        name = f"{cell.table}/{cell.row}/{cell.column}"
        if name not in done:
            done[name] = measure(model, cell, pixels, test)
            write_text(notes, json.dumps(done, indent=2) + "\n")
            print(name, done[name], flush=True)
    result = {"test_images": len(test), "fit_images": len(pixels), "teacher": done["teacher"]["accuracy"]}
    result |= {table: _table(done, table) for table in ("gelu", "softmax")}
    write_text(RESULT, json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def measure(model: Model, cell: Cell, pixels: np.ndarray, test: Images) -> dict[str, float]:
    """Accuracy of one cell, and the seconds its fit took."""
    student = planned_student(model.subject.spec, cell.plan, model.weights)
    started = time.monotonic()
    if cell.fit is not None:
        student = fit(student, pixels, cell.fit, model.student())
    seconds = round(time.monotonic() - started, 1)
    return {"accuracy": round(100 * accuracy(student.eval(), test), 2), "fit_seconds": seconds}


def cells(spec: Spec, ablation: bool) -> list[Cell]:
    """Every cell of the two tables, the fitted ones first."""
    ways = {"fitted": FITTED} | ({"parameters alone": ALONE} if ablation else {})
    found = []
    for kept in reversed(KEPT_TOKENS):
        columns: dict[str, tuple[str, FitConfig | None]] = {"identity (paper)": ("identity", None)}
        columns |= {f"{n}, {way}": (n, how) for n in ("affine", "quadratic") for way, how in ways.items()}
        for column, (stand_in, how) in columns.items():
            found.append(Cell("gelu", str(kept), column, gelu_plan(spec, kept, stand_in), how))
    rows = {"all layers": (0, False), "all layers, class token's rows exact": (0, True)}
    rows |= {"second half of the layers, class token's rows exact": (spec.depth // 2, True)}
    for row, (first, exact_class) in rows.items():
        columns = {"s^2/N (paper)": ("squared_attn", None), "uniform": ("uniform_attn", None)}
        columns |= {"2Quad": ("two_quad", None)}
        columns |= {f"quadratic, {way}": ("quadratic_attn", how) for way, how in ways.items()}
        for column, (stand_in, how) in columns.items():
            found.append(Cell("softmax", row, column, softmax_plan(spec, first, exact_class, stand_in), how))
    return sorted(found, key=lambda cell: cell.fit is None)


def gelu_plan(spec: Spec, kept: int, stand_in: str, seed: int = 0) -> Plan:
    """Keeps the GELU of `kept` tokens drawn at random in each layer, and every softmax."""
    generator = np.random.default_rng(seed)
    tokens = [np.argsort(generator.random(spec.tokens)) < kept for _ in spec.blocks]
    rows = [np.ones((block.heads, spec.tokens), dtype=bool) for block in spec.blocks]
    return plan_from_kept(Granularity(), {"gelu": tokens, "softmax": rows}, stand_in={"gelu": stand_in})


def softmax_plan(spec: Spec, first: int, exact_class: bool, stand_in: str) -> Plan:
    """Replaces softmax from layer `first` on, but for the class token's rows if those stay exact."""
    rows = [np.full((block.heads, spec.tokens), layer < first) for layer, block in enumerate(spec.blocks)]
    for layer in rows:
        layer[:, 0] |= exact_class
    tokens = [np.ones(spec.tokens, dtype=bool) for _ in spec.blocks]
    return plan_from_kept(Granularity(), {"gelu": tokens, "softmax": rows}, stand_in={"softmax": stand_in})


def _first(split: Split, count: int) -> Split:
    return split.subset(np.arange(min(count, len(split))))


def _table(done: dict[str, Any], table: str) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for name, figures in done.items():
        parts = name.split("/", 2)
        if parts[0] == table:
            # "s^2/N" has a slash of its own: only the first two are separators.
            rows.setdefault(parts[1], {})[parts[2]] = figures["accuracy"]
    return rows


if __name__ == "__main__":
    main()
