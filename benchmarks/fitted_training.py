"""Fitted stand-ins against the paper's after the same training: 0 + 0 and 10 % + 10 % of the sites kept.

    python benchmarks/fitted_training.py [--epochs 3] [--cells 0-fitted 0-paper 10-fitted 10-paper]

DeiT-Tiny at 112 px, 8,000 CIFAR-10 training images, one teacher (fitted_teacher.py). The plan of a budget
is the same for both kinds of stand-in (chosen without training, with fitted ones); the paper's start from
the teacher's weights. Then both are fine-tuned with the same settings. Every cell is a run folder: what is
finished is read, what was interrupted goes on. The end is docs/results/fitted-training.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from fitted_teacher import ROOT, RUNS, TEACHER, teacher

from privit.config import Budget, FinetuneConfig, keep
from privit.plan import Plan, swap_operator
from privit.runs import load_run, write_text
from privit.train.batches import Images
from privit.train.finetune import finetune
from privit.train.stages import planned_student, read_model
from privit.train.training_free import TrainingFreeConfig, accuracy, search_without_training

RESULT = ROOT / "docs" / "results" / "fitted-training.json"
BUDGETS = {"0": Budget({"gelu": 0, "softmax": 0}), "10": keep(0.1)}
CELLS = ("0-fitted", "0-paper", "10-fitted", "10-paper")
UNTRAINED_IMAGES = 2000


def finetune_config(epochs: int) -> FinetuneConfig:
    """How every cell is trained: cross-entropy and KD, cosine to zero, stand-ins' parameters along."""
    return FinetuneConfig(
        epochs=epochs,
        batch_size=64,
        learning_rate=2e-4,
        weight_decay=1e-4,
        schedule="cosine",
        gradient_clip=1.0,
        select="last",
    )


def main() -> None:
    """Runs the cells asked for and prints every finished cell as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    arguments = parser.parse_args()
    figures = teacher()
    for cell in arguments.cells:
        run_cell(cell, arguments.epochs)
        result = {"teacher": round(100 * figures["accuracy"], 2), "epochs": arguments.epochs}
        result["cells"] = {
            name: describe(name, arguments.epochs) for name in CELLS if _done(name, arguments.epochs)
        }
        write_text(RESULT, json.dumps(result, indent=2) + "\n")
        print(json.dumps(result, indent=2), flush=True)


def run_cell(cell: str, epochs: int) -> None:
    """Fits or converts, then fine-tunes one cell."""
    share, kind = cell.split("-")
    fitted = RUNS / f"{share}-fitted"
    search_without_training(TEACHER, fitted, TrainingFreeConfig(budgets=(BUDGETS[share],)))
    config = finetune_config(epochs)
    if kind == "fitted":
        finetune(fitted, _folder(cell, epochs), config)
    else:
        finetune(TEACHER, _folder(cell, epochs), config, plan=paper_plan(fitted))


def paper_plan(fitted: Path) -> Plan:
    """The same sites kept, with the paper's stand-ins elsewhere."""
    plan = read_model(load_run(fitted, "search")).plan
    return swap_operator(swap_operator(plan, "quadratic", "identity"), "quadratic_attn", "squared_attn")


def describe(cell: str, epochs: int) -> dict[str, Any]:
    """Accuracy before and after training, in percent of the whole test set but where it says otherwise."""
    run = load_run(_folder(cell, epochs), "finetune")
    result = run.result() or {}
    share, kind = cell.split("-")
    fitted = load_run(RUNS / f"{share}-fitted", "search").result() or {}
    described = {"kept_gelu": result["kept_gelu"], "kept_softmax": result["kept_softmax"]}
    if kind == "fitted":
        described |= {"after_fit": round(100 * fitted["accuracy"], 2), "fit_seconds": fitted["seconds"]}
    else:
        described[f"untrained_on_{UNTRAINED_IMAGES}"] = untrained(share)
    described["after_finetune"] = round(100 * result["accuracy"], 2)
    described["validation_by_epoch"] = [
        round(100 * record["validation_accuracy"], 2) for record in run.metrics()
    ]
    return described | {"seconds": result["seconds"]}


def untrained(share: str) -> float:
    """Accuracy of the paper's stand-ins in the teacher, before any training."""
    model = read_model(load_run(TEACHER, "teacher"))
    student = planned_student(model.subject.spec, paper_plan(RUNS / f"{share}-fitted"), model.weights)
    test = model.subject.load().test.subset(np.arange(UNTRAINED_IMAGES))
    return round(100 * accuracy(student.eval(), Images(test, model.subject.preprocessing, 4 << 30)), 2)


def _folder(cell: str, epochs: int) -> Path:
    return RUNS / f"{cell}-{epochs}-epochs"


def _done(cell: str, epochs: int) -> bool:
    return (_folder(cell, epochs) / "result.json").is_file()


if __name__ == "__main__":
    main()
