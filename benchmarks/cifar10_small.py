"""PriViT against a random and a layer-wise plan of the same counts: CIFAR-10, a small ViT, three seeds.

    python benchmarks/cifar10_small.py               all seeds, then docs/results/cifar10-small.json
    python benchmarks/cifar10_small.py --seeds 1     one seed only; the JSON holds the seeds that are finished

Every cell is a run folder: an interrupted cell goes on, a finished one is read. All plans are fine-tuned
with the same settings for the same number of epochs, and learn from the same teacher:
    privit        the searched plan, from the weights that the search left
    privit-plan   the searched plan, from the teacher's weights: what the choice of sites alone is worth
    random        as many sites, drawn at random, from the teacher's weights
    layerwise     as many sites, whole layers from the first on, from the teacher's weights
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

from privit.config import Descent, FinetuneConfig, SearchConfig, TeacherConfig, keep
from privit.plan import Plan, load_plan
from privit.runs import Run, load_run
from privit.train.baselines import layerwise_plan, random_plan
from privit.train.finetune import finetune
from privit.train.search import search
from privit.train.teacher import train_teacher

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "cifar10"
RUNS = ROOT / "runs" / "cifar10-small"
RESULT = ROOT / "docs" / "results" / "cifar10-small.json"
MODEL = "vit:image_size=32,patch=4,width=64,depth=4,heads=2"
SEEDS = (0, 1, 2)
SHARE = 0.1
ARMS = ("privit", "privit-plan", "random", "layerwise")


def teacher_config(seed: int) -> TeacherConfig:
    """How each seed's teacher is trained from scratch."""
    return TeacherConfig(
        epochs=12,
        learning_rate=1e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup_epochs=2,
        gradient_clip=1.0,
        pretrained=False,
        train_limit=5000,
        select="last",
        seed=seed,
        data_seed=seed,
    )


def search_config(seed: int) -> SearchConfig:
    """How each seed's plan is found."""
    return SearchConfig(
        epochs=20,
        learning_rate=3e-4,
        switch_learning_rate=3e-3,
        epsilon=0.03,
        warmup_epochs=0,
        gradient_clip=1.0,
        budgets=(keep(SHARE),),
        descents={"gelu": Descent(3e-3, 1.4, 0.06), "softmax": Descent(3e-3, 1.4, 0.06)},
        seed=seed,
    )


def finetune_config(seed: int) -> FinetuneConfig:
    """How every plan is trained on, whoever made it."""
    return FinetuneConfig(
        epochs=5,
        learning_rate=1e-3,
        weight_decay=0.01,
        warmup_epochs=1,
        gradient_clip=1.0,
        select="last",
        seed=seed,
    )


def run_seed(seed: int) -> None:
    """Every cell of one seed."""
    folder = RUNS / f"seed-{seed}"
    train_teacher(MODEL, str(DATA), folder / "teacher", teacher_config(seed))
    search(folder / "teacher", folder / "search", search_config(seed))
    config = finetune_config(seed)
    finetune(folder / "search", folder / "privit", config)
    for arm, plan in other_plans(folder, seed).items():
        finetune(folder / "teacher", folder / arm, config, plan=plan)


def other_plans(folder: Path, seed: int) -> dict[str, Plan]:
    """The plans that start from the teacher's weights, all with the counts of the searched one."""
    from privit.train.stages import read_model

    spec = read_model(load_run(folder / "teacher")).subject.spec
    searched = load_plan(folder / "search" / "plan.safetensors")
    gelu, softmax = (sum(searched.kept(kind)) for kind in ("gelu", "softmax"))
    return {
        "privit-plan": searched,
        "random": random_plan(spec, gelu, softmax, seed),
        "layerwise": layerwise_plan(spec, gelu, softmax),
    }


def summarize() -> dict[str, Any]:
    """Accuracies of the finished seeds, their mean and spread, and PriViT's lead over each plan, by seed."""
    seeds = [_cells(seed) for seed in SEEDS if _finished(seed)]
    result: dict[str, Any] = {"command": "python benchmarks/cifar10_small.py", "model": MODEL, "share": SHARE}
    result["train_images"] = teacher_config(0).train_limit
    result["measured_on"] = "CIFAR-10, 10,000 test images"
    if seeds:
        result["accuracy"] = {n: _spread([s["accuracy"][n] for s in seeds]) for n in seeds[0]["accuracy"]}
        result["lead_of_privit"] = {
            arm: _spread([s["accuracy"]["privit"] - s["accuracy"][arm] for s in seeds]) for arm in ARMS[1:]
        }
        result["lead_of_the_plan_alone"] = {
            arm: _spread([s["accuracy"]["privit-plan"] - s["accuracy"][arm] for s in seeds])
            for arm in ARMS[2:]
        }
    result["seeds"] = seeds
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return result


def _finished(seed: int) -> bool:
    return all((RUNS / f"seed-{seed}" / arm / "result.json").is_file() for arm in ARMS)


def _cells(seed: int) -> dict[str, Any]:
    runs = {n: load_run(RUNS / f"seed-{seed}" / n) for n in ("teacher", "search", *ARMS)}
    results = {name: _result(run) for name, run in runs.items()}
    return {
        "seed": seed,
        "accuracy": {name: result["accuracy"] for name, result in results.items()},
        "kept": {arm: results[arm]["kept"] for arm in ARMS},
        "sites": results["privit"]["sites"],
        "search_epochs": results["search"]["epochs"],
        "finetune_epochs": results["privit"]["epochs"],
        "warnings": results["search"]["warnings"],
        "seconds": {name: result["seconds"] for name, result in results.items()},
    }


def _result(run: Run) -> dict[str, Any]:
    result = run.result()
    assert result is not None
    return result


def _spread(values: list[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "deviation": deviation, "by_seed": values}


def main(seeds: tuple[int, ...] = SEEDS, threads: int | None = None) -> dict[str, Any]:
    """Runs what is left of the given seeds; writes and returns the summary."""
    if threads:
        torch.set_num_threads(threads)
    for seed in seeds:
        run_seed(seed)
    return summarize()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    print(json.dumps(main(tuple(arguments.seeds), arguments.threads), indent=2))
