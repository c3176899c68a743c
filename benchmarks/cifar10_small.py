"""PriViT against a random and a layer-wise plan of the same counts: CIFAR-10, a small ViT, three seeds.

    python benchmarks/cifar10_small.py               all seeds, then docs/results/cifar10-small.json
    python benchmarks/cifar10_small.py --seeds 1     one seed only; the JSON holds the seeds that are finished
    python benchmarks/cifar10_small.py --long        longer, augmented, docs/results/cifar10-long.json

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
from dataclasses import dataclass, field
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
MODEL = "vit:image_size=32,patch=4,width=64,depth=4,heads=2"
SEEDS = (0, 1, 2)
SHARE = 0.1
ARMS = ("privit", "privit-plan", "random", "layerwise")


@dataclass(frozen=True)
class Size:
    """How long everything takes; `name` names the runs' folder and the JSON."""

    name: str
    teacher_epochs: int
    descent: Descent
    penalty_warmup_epochs: int
    search_epochs: int
    finetune_epochs: int
    augmentation: dict[str, float] = field(default_factory=dict)

    @property
    def runs(self) -> Path:
        """Where the cells are."""
        return ROOT / "runs" / self.name

    @property
    def result(self) -> Path:
        """Where the summary goes."""
        return ROOT / "docs" / "results" / f"{self.name}.json"


SHORT = Size("cifar10-small", 12, Descent(3e-3, 1.4, 0.06), 0, 20, 5)
# The penalty starts below the noise of a switch's gradient (1e-3 a batch), so that sites fall apart by their
# worth; in SHORT it starts above it, and all fall at Adam's full speed.
LONG = Size("cifar10-long", 24, Descent(3e-4, 1.3, 0.06), 2, 20, 8, {"flip": 0.5, "shift": 2})


def teacher_config(size: Size, seed: int) -> TeacherConfig:
    """How each seed's teacher is trained from scratch."""
    return TeacherConfig(
        epochs=size.teacher_epochs,
        learning_rate=1e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup_epochs=2,
        gradient_clip=1.0,
        pretrained=False,
        train_limit=5000,
        augmentation=size.augmentation,
        select="last",
        seed=seed,
        data_seed=seed,
    )


def search_config(size: Size, seed: int) -> SearchConfig:
    """How each seed's plan is found."""
    return SearchConfig(
        epochs=size.search_epochs,
        learning_rate=3e-4,
        switch_learning_rate=3e-3,
        epsilon=0.03,
        penalty_warmup_epochs=size.penalty_warmup_epochs,
        gradient_clip=1.0,
        budgets=(keep(SHARE),),
        descents={"gelu": size.descent, "softmax": size.descent},
        augmentation=size.augmentation,
        seed=seed,
    )


def finetune_config(size: Size, seed: int) -> FinetuneConfig:
    """How every plan is trained on, whoever made it."""
    return FinetuneConfig(
        epochs=size.finetune_epochs,
        learning_rate=1e-3,
        weight_decay=0.01,
        warmup_epochs=1,
        gradient_clip=1.0,
        augmentation=size.augmentation,
        select="last",
        seed=seed,
    )


def run_seed(size: Size, seed: int) -> None:
    """Every cell of one seed."""
    folder = size.runs / f"seed-{seed}"
    train_teacher(MODEL, str(DATA), folder / "teacher", teacher_config(size, seed))
    search(folder / "teacher", folder / "search", search_config(size, seed))
    config = finetune_config(size, seed)
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
        "random": random_plan(spec, gelu, softmax, seed),
        "layerwise": layerwise_plan(spec, gelu, softmax),
        "privit-plan": searched,
    }


def summarize(size: Size = SHORT) -> dict[str, Any]:
    """Accuracies of the finished seeds, their mean and spread, and PriViT's lead over each plan, by seed."""
    seeds = [_cells(size, seed) for seed in SEEDS if _finished(size, seed)]
    result: dict[str, Any] = {"command": command(size), "model": MODEL, "share": SHARE}
    result["train_images"] = teacher_config(size, 0).train_limit
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
    size.result.parent.mkdir(parents=True, exist_ok=True)
    size.result.write_text(json.dumps(result, indent=2) + "\n")
    return result


def command(size: Size) -> str:
    """What makes the figures again."""
    return "python benchmarks/cifar10_small.py" + (" --long" if size == LONG else "")


def _finished(size: Size, seed: int) -> bool:
    return all((size.runs / f"seed-{seed}" / arm / "result.json").is_file() for arm in ARMS)


def _cells(size: Size, seed: int) -> dict[str, Any]:
    runs = {n: load_run(size.runs / f"seed-{seed}" / n) for n in ("teacher", "search", *ARMS)}
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


def main(seeds: tuple[int, ...] = SEEDS, threads: int | None = None, size: Size = SHORT) -> dict[str, Any]:
    """Runs what is left of the given seeds; writes and returns the summary."""
    if threads:
        torch.set_num_threads(threads)
    for seed in seeds:
        run_seed(size, seed)
    return summarize(size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    print(
        json.dumps(
            main(tuple(arguments.seeds), arguments.threads, LONG if arguments.long else SHORT), indent=2
        )
    )
