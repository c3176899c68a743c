"""DeiT-Tiny on CIFAR-10 as a product: every trained student exported, costed and asked privately.

    python benchmarks/deit_cifar10.py                     all of it, then docs/results/cifar10/results.json
    python benchmarks/deit_cifar10.py --students 10-fitted 0-fitted --parts export cost simulated

The students are those of fitted_training.py (which trains what is not trained yet), the one of cost_budget.py
with the bytes of PriViT's plan as a budget and a cap in seconds (10-capped: it keeps less than 10 % + 10 %
of the sites), that plan with as many sites more as make 10 % + 10 % (10-filled), and three peers: PriViT-R
(the plan of 10 % + 10 % with ReLU for GELU), SNL (GELU only) and MPCFormer (2Quad and Quad everywhere).
`whole` is the teacher itself, untouched, as privit would serve it. For each student:
    export      the artifact, ranges measured and checked
    cost        ReLUOps (paper), AND gates (circuits), bytes, rounds and seconds (spu), all predicted
    folded      the program's logits in the clear against the torch student's, over 100 test images
    bench       bytes and rounds on SEMI2K next to dense and dense-rewritten, one run
    simulated   100 test images on SEMI2K: accuracy, and agreement with plaintext (not private: a benchmark)
    private     3 test images between two processes on CHEETAH
    private3    3 test images between three processes on ABY3
    timed       seconds on CHEETAH next to dense and dense-rewritten, one after the other in one process
Each part of each student is kept as it is finished, so that an interrupted command goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cost_budget import exported
from fitted_teacher import ROOT, RUNS, SHARED, TEACHER, teacher
from fitted_training import BUDGETS, CELLS, finetune_config, run_cell, search_config, split_cell

from privit.artifact import load_artifact
from privit.cli.budgeting import FITTED
from privit.config import Budget, changed, free_choices
from privit.operators import BY_NAME
from privit.operators import UNTOUCHED as EXACT
from privit.plan import Plan, plan_from_ids, uniform_plan
from privit.runs import load_run, read_arrays, write_text
from privit.spec import KINDS
from privit.train.baselines import match
from privit.train.descent.afford import choices
from privit.train.finetune import finetune
from privit.train.search import search
from privit.train.stages import planned_student, read_model

RESULT = ROOT / "docs" / "results" / "cifar10" / "results.json"
ARTIFACTS = RUNS / "artifacts"
SIMULATED_IMAGES, PRIVATE_IMAGES = 100, 3
BENCHMARK = "semi2k-benchmark"
PROTOCOLS = (BENCHMARK, "aby3", "cheetah")
NETWORKS = ("lan", "wan")
CAPPED = ROOT / "runs" / "cost-budget" / "deit" / "seed-0" / "search-capped-1.6"
"""Where cost_budget.py keeps the plan of 10-capped as it was chosen, with what every site loses."""
MEMORY_BYTES = 0
"""Of images kept at the model's size: a hundred of 10,000 are made on demand."""


def train_capped() -> Path:
    """A budget in bytes and a cap in seconds, both below those of PriViT at 10 % + 10 %."""
    import cost_budget

    cost_budget.run_seed("deit", 0, trained=False)
    return CAPPED.with_name("capped-1.6")


def train_filled() -> Path:
    """The plan of 10-capped, with the exact sites that it is short of 10 % + 10 %."""
    train_capped()
    finetune(CAPPED, RUNS / "10-filled", finetune_config(), plan=filled_plan(CAPPED, BUDGETS["10"]))
    return RUNS / "10-filled"


def filled_plan(searched: Path, budget: Budget) -> Plan:
    """A plan found under cost with exact sites added up to a budget in sites.

    Rounds follow the layers that keep any, so all that a kind is short of goes to one layer: the one in
    which these sites lose most with what stands there (as measured by the search, without training).
    """
    run = load_run(searched, "search")
    plan, arrays = read_model(run).plan, read_arrays(run.folder / "losses.safetensors")
    levels = choices(EXACT, FITTED, free_choices(FITTED))
    layers = {kind: [ids.copy() for ids in plan.layers[kind]] for kind in KINDS}
    for kind in KINDS:
        short = round(budget.sites[kind] * plan.total(kind)) - sum(plan.kept(kind))
        lost = []
        for i, ids in enumerate(layers[kind]):
            level = np.argmax([ids == BY_NAME[name].id for name in levels[kind]], axis=0)
            lost.append(np.take_along_axis(arrays[f"losses/{kind}/{i}"], level[None], axis=0).ravel())
        best = max(range(len(lost)), key=lambda i: float(np.sort(lost[i])[-short:].sum()))
        flat = layers[kind][best].reshape(-1)
        flat[np.argsort(-lost[best], kind="stable")[:short]] = BY_NAME[EXACT[kind]].id
    return plan_from_ids(plan.granularity, layers)


def train_relu() -> Path:
    """PriViT-R: the plan and the weights of 10 % + 10 % with the paper's stand-ins, GELU to ReLU."""
    run_cell("10", "paper")
    config = changed(finetune_config(), swap={"gelu": "relu"})
    finetune(RUNS / "search-paper", RUNS / "10-relu", config, "10")
    return RUNS / "10-relu"


def train_snl() -> Path:
    """SNL: only GELUs are replaced; every softmax stays."""
    config = changed(
        search_config("paper"), kinds=("gelu",), budgets=(Budget({"gelu": 0.1, "softmax": 1.0}, "10"),)
    )
    search(TEACHER, RUNS / "search-snl", config)
    finetune(RUNS / "search-snl", RUNS / "10-snl", finetune_config(), "10")
    return RUNS / "10-snl"


def train_mpcformer() -> Path:
    """MPCFormer: 2Quad and Quad everywhere, hidden states matched first, then logits."""
    spec = read_model(load_run(TEACHER, "teacher")).subject.spec
    plan = uniform_plan(spec, "quad", "two_quad")
    match(TEACHER, RUNS / "match-mpcformer", plan, finetune_config())
    finetune(RUNS / "match-mpcformer", RUNS / "mpcformer", finetune_config())
    return RUNS / "mpcformer"


def train_cell(cell: str) -> Path:
    """One student of fitted_training.py."""
    run_cell(*split_cell(cell))
    return RUNS / cell


OTHERS: dict[str, Callable[[], Path]] = {
    "whole": lambda: TEACHER,
    "10-capped": train_capped,
    "10-filled": train_filled,
    "10-relu": train_relu,
    "10-snl": train_snl,
    "mpcformer": train_mpcformer,
}
STUDENTS = (*CELLS, *OTHERS)


def export_part(student: str, folder: Path) -> dict[str, Any]:
    """The artifact of a student, trained first where it is not; of one that is refused the program alone."""
    run = OTHERS[student]() if student in OTHERS else train_cell(student)
    refused = exported(run, folder)
    result, artifact = load_run(run).result() or {}, load_artifact(folder)
    found: dict[str, Any] = {"accuracy": result["accuracy"]}
    found["kept"] = {kind: artifact.plan.kept(kind) for kind in KINDS}
    found["sites"] = {kind: artifact.plan.total(kind) for kind in KINDS}
    found |= {key: artifact.public.notes[key] for key in ("stream_scale",) if key in artifact.public.notes}
    return found | ({"refused": refused} if refused else {})


def folded_part(student: str, folder: Path) -> dict[str, Any]:
    """How far folding stand-ins into weights moves the logits: the exported program against torch."""
    import torch

    from privit.data.datasets import load_data
    from privit.serve.measure.evaluate import plain_logits
    from privit.train.loop.batches import Images, to_tensor

    artifact = load_artifact(folder)
    assert artifact.weights is not None
    test = load_data(str(SHARED / "cifar10")).test
    pictures = Images(test, artifact.public.preprocessing, MEMORY_BYTES).take(np.arange(SIMULATED_IMAGES))
    unfolded = planned_student(artifact.spec, artifact.plan, artifact.weights).eval()
    with torch.no_grad():
        expected = unfolded(to_tensor(pictures, "cpu")).numpy()
    found = plain_logits(artifact, test, SIMULATED_IMAGES)
    agree = int((found.argmax(1) == expected.argmax(1)).sum())
    largest = float(np.abs(found - expected).max())
    return {"images": SIMULATED_IMAGES, "max_logit_difference": largest, "agree": agree}


def cost_part(student: str, folder: Path) -> dict[str, Any]:
    """Predicted cost by every profile, of the student and of the untouched model."""
    from privit.cost.estimate import estimate
    from privit.cost.spu.predict import estimate_spu

    artifact = load_artifact(folder)
    spec, plan, ranges = artifact.public.spec, artifact.plan, artifact.public.ranges
    found: dict[str, Any] = {
        profile: estimate(spec, plan, profile).total for profile in ("paper", "circuits")
    }
    for protocol in PROTOCOLS:
        for network in NETWORKS:
            for graph in ("all", "dense", "dense-rewritten"):
                figures = estimate_spu(spec, plan, protocol, network, ranges=ranges, rewrites=graph)
                found[f"{protocol}/{network}/{graph}"] = _shown(figures)
    return found


def bench_part(student: str, folder: Path, protocol: str = BENCHMARK) -> dict[str, Any]:
    """Bytes, rounds and seconds, next to the untouched model as written and rewritten."""
    from privit.serve.measure.bench import bench

    result = bench(load_artifact(folder), protocol, ("dense", "dense-rewritten"))
    return _shown(result) | {name: _shown(figures) for name, figures in result["against"].items()}


def simulated_part(student: str, folder: Path) -> dict[str, Any]:
    """Accuracy and agreement over 100 images in the simulator: a benchmark mode that is not private."""
    from privit.serve.measure.evaluate import evaluate

    return evaluate(
        folder,
        "simulated",
        BENCHMARK,
        images=SIMULATED_IMAGES,
        record=folder.with_suffix(".simulated.jsonl"),
        progress=lambda done, asked: print(f"{student}: {done} of {asked} simulated", flush=True),
    )


def private_part(student: str, folder: Path, protocol: str = "cheetah") -> dict[str, Any]:
    """Accuracy, agreement and seconds between real processes."""
    from privit.serve.measure.private import evaluate_private

    return evaluate_private(
        folder,
        images=PRIVATE_IMAGES,
        protocol=protocol,
        record=folder.with_suffix(f".{protocol}.jsonl"),
        progress=lambda done, asked: print(f"{student}: {done} of {asked} on {protocol}", flush=True),
    )


PARTS: dict[str, Callable[[str, Path], dict[str, Any]]] = {
    "export": export_part,
    "folded": folded_part,
    "cost": cost_part,
    "bench": bench_part,
    "simulated": simulated_part,
    "private": private_part,
    "private3": partial(private_part, protocol="aby3"),
    "timed": partial(bench_part, protocol="cheetah"),
}


ASKED = ("folded", "simulated", "private", "private3")
"""Parts that ask a student, which one whose values do not fit the engine cannot answer."""


def refused(student: str) -> bool:
    """Whether the student's export was refused."""
    notes = ARTIFACTS / f"{student}.export.json"
    return notes.is_file() and "refused" in json.loads(notes.read_text())


def _shown(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: figures[name] for name in ("sent_bytes", "rounds", "seconds") if name in figures}


def main() -> dict[str, Any]:
    """Does what is asked for and not yet done; prints and writes all that is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--students", nargs="+", choices=STUDENTS, default=list(STUDENTS))
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS)[:-2])
    arguments = parser.parse_args()
    teacher()
    for student in arguments.students:
        for part in arguments.parts:
            notes = ARTIFACTS / f"{student}.{part}.json"
            if not notes.is_file() and not (part in ASKED and refused(student)):
                write_text(notes, json.dumps(PARTS[part](student, ARTIFACTS / student), indent=2) + "\n")
    return summarize()


def summarize() -> dict[str, Any]:
    """Everything that is finished, in one file."""
    result: dict[str, Any] = {
        "model": "deit_tiny_patch16_224 at 112 px",
        "data": "CIFAR-10: 8,000 training images, 10,000 test images",
        "command": "python benchmarks/deit_cifar10.py",
        "teacher": {"accuracy": teacher()["accuracy"]},
        "students": {},
    }
    for student in STUDENTS:
        parts = {part: ARTIFACTS / f"{student}.{part}.json" for part in PARTS}
        found = {part: json.loads(path.read_text()) for part, path in parts.items() if path.is_file()}
        for figures in found.values():
            figures.pop("data", None)  # a folder of this machine
        if found:
            result["students"][student] = found
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    write_text(RESULT, json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
