"""Fitted stand-ins against the paper's after the same training, at four budgets from 50 % to nothing.

    python benchmarks/fitted_training.py [--cells 0-fitted 0-paper 10-fitted 10-paper]

DeiT-Tiny at 112 px, 8,000 CIFAR-10 training images, one teacher (fitted_teacher.py). At 50 % + 50 %, 30 % of
the GELU tokens + 10 % of the softmax rows, and 10 % + 10 % the plans come from one descent, in which weights
and switches are trained together, once for each kind of stand-in with the same settings: from fitted
stand-ins, or from the teacher with the paper's. At 0 + 0 there is nothing to choose. Then all are
fine-tuned with the same settings. Every cell is a line of run folders: what is finished is read, what was
interrupted goes on. The end is docs/results/fitted-training.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from fitted_teacher import ROOT, RUNS, TEACHER, teacher

from privit.config import Budget, Descent, FinetuneConfig, SearchConfig
from privit.plan import Plan, swap_operator
from privit.runs import load_run, write_text
from privit.train.finetune import finetune
from privit.train.loop.batches import Images
from privit.train.search import search
from privit.train.stages import planned_student, read_model
from privit.train.training_free import (
    TrainingFreeConfig,
    accuracy,
    fitted_start,
    search_without_training,
)

RESULT = ROOT / "docs" / "results" / "fitted-training.json"
BUDGETS = {
    "50": Budget({"gelu": 0.5, "softmax": 0.5}, "50"),
    "30-10": Budget({"gelu": 0.3, "softmax": 0.1}, "30-10"),
    "10": Budget({"gelu": 0.1, "softmax": 0.1}, "10"),
    "0": Budget({"gelu": 0, "softmax": 0}, "0"),
}
DESCENT = ("50", "30-10", "10")
"""What one descent meets on its way; "0" needs none."""
STAND_INS = {
    "fitted": {"gelu": "quadratic", "softmax": "quadratic_attn"},
    "paper": {"gelu": "identity", "softmax": "squared_attn"},
}
PENALTY = {"fitted": {"gelu": 6e-4, "softmax": 5e-4}, "paper": {"gelu": 2e-2, "softmax": 6e-3}}
"""Lambda at the start, by one rule: the deviation of a switch's gradient in the teacher, over batches of 64.

It is what tells sites apart from noise; a fitted stand-in is so near the operator it replaces that its
switch's gradient is some thirty times smaller."""
CELLS = tuple(f"{budget}-{kind}" for budget in ("0", "10", "30-10", "50") for kind in STAND_INS)
UNTRAINED_IMAGES = 2000


def search_config(kind: str) -> SearchConfig:
    """How both kinds of stand-in are searched; only where the penalty starts differs (see PENALTY)."""
    return SearchConfig(
        epochs=5,
        batch_size=64,
        learning_rate=1e-4,
        switch_learning_rate=4e-3,
        epsilon=0.04,
        penalty_warmup_epochs=0,
        gradient_clip=1.0,
        budgets=tuple(BUDGETS[name] for name in DESCENT),
        descents={name: Descent(penalty, 2.0, 0.2) for name, penalty in PENALTY[kind].items()},
        stand_in=STAND_INS[kind],
    )


def finetune_config() -> FinetuneConfig:
    """How every cell is trained: cross-entropy and KD, cosine to zero, stand-ins' parameters along."""
    return FinetuneConfig(
        epochs=3,
        batch_size=64,
        learning_rate=1e-4,
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
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    arguments = parser.parse_args()
    figures = teacher()
    for cell in arguments.cells:
        run_cell(*split_cell(cell))
        result: dict[str, Any] = {"teacher": round(100 * figures["accuracy"], 2)}
        result |= {
            "finetune_epochs": finetune_config().epochs,
            "most_search_epochs": search_config("paper").epochs,
        }
        result["cells"] = {name: describe(*split_cell(name)) for name in CELLS if _done(*split_cell(name))}
        write_text(RESULT, json.dumps(result, indent=2) + "\n")
        print(json.dumps(result, indent=2), flush=True)


def run_cell(budget: str, kind: str) -> None:
    """Fits, searches where there is something to choose, and fine-tunes one cell."""
    untrained_run(budget)
    if budget != "0":
        start = fitted_start(TEACHER) if kind == "fitted" else None
        descent = RUNS / f"search-{kind}"
        search(TEACHER, descent, search_config(kind), start)
        finetune(descent, _folder(budget, kind), finetune_config(), budget)
    elif kind == "fitted":
        finetune(RUNS / "untrained-0", _folder(budget, kind), finetune_config())
    else:
        finetune(TEACHER, _folder(budget, kind), finetune_config(), plan=paper_plan(budget))


def untrained_run(budget: str) -> dict[str, Any]:
    """The plan chosen and the stand-ins fitted without training."""
    config = TrainingFreeConfig(budgets=(BUDGETS[budget],))
    return search_without_training(TEACHER, RUNS / f"untrained-{budget}", config)


def paper_plan(budget: str) -> Plan:
    """The sites kept without training, with the paper's stand-ins elsewhere."""
    plan = read_model(load_run(RUNS / f"untrained-{budget}", "search")).plan
    return swap_operator(swap_operator(plan, "quadratic", "identity"), "quadratic_attn", "squared_attn")


def describe(budget: str, kind: str) -> dict[str, Any]:
    """Accuracy before and after training, in percent of the whole test set but where it says otherwise."""
    run = load_run(_folder(budget, kind), "finetune")
    result = run.result() or {}
    described: dict[str, Any] = {"kept": result["kept"]}
    if kind == "fitted":
        fitted = untrained_run(budget)
        described |= {"after_fit": round(100 * fitted["accuracy"], 2), "fit_seconds": fitted["seconds"]}
    else:
        described[f"untrained_on_{UNTRAINED_IMAGES}"] = untrained(budget)
    if budget != "0":
        searched = load_run(RUNS / f"search-{kind}", "search").result() or {}
        described["after_search"] = round(100 * searched["budgets"][budget]["accuracy"], 2)
        described["search_epochs"] = searched["epochs"]
    described["after_finetune"] = round(100 * result["accuracy"], 2)
    described["validation_by_epoch"] = [
        round(100 * record["validation_accuracy"], 2) for record in run.metrics()
    ]
    return described | {"seconds": result["seconds"]}


def untrained(budget: str) -> float:
    """Accuracy of the paper's stand-ins in the teacher, before any training."""
    model = read_model(load_run(TEACHER, "teacher"))
    student = planned_student(model.subject.spec, paper_plan(budget), model.weights)
    test = model.subject.load().test.subset(np.arange(UNTRAINED_IMAGES))
    return round(100 * accuracy(student.eval(), Images(test, model.subject.preprocessing, 4 << 30)), 2)


def split_cell(cell: str) -> tuple[str, str]:
    """The budget and the kind of stand-in of a cell."""
    budget, kind = cell.rsplit("-", 1)
    return budget, kind


def _folder(budget: str, kind: str) -> Path:
    return RUNS / f"{budget}-{kind}"


def _done(budget: str, kind: str) -> bool:
    return (_folder(budget, kind) / "result.json").is_file()


if __name__ == "__main__":
    main()
