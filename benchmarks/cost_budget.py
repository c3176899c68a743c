"""Budgets in cost against budgets in sites: accuracy against rounds, bytes and WAN seconds of one prediction.

    python benchmarks/cost_budget.py --on digits                  three seeds, about a CPU minute each
    python benchmarks/cost_budget.py --on cifar10                 the small ViT at 32 px, three seeds
    python benchmarks/cost_budget.py --on deit                    DeiT-Tiny at 112 px, one seed
    python benchmarks/cost_budget.py --on digits --trained        the trained search under cost, too

Every arm has the same teacher, fine-tuning settings and seed:
    sites           PriViT as published: 10 % of the GELUs and of the softmaxes, the paper's stand-ins
    sites-fitted    the same counts, with stand-ins fitted to the teacher: what budgets in cost add to those
    untrained-K     1/K of the WAN seconds that `sites` is predicted to take, the plan chosen without training
    capped-K        the bytes of `sites` as the budget and 1/K of its WAN seconds as a cap, the plan chosen
                    without training; then trained for as many epochs as `sites` was searched and fine-tuned
                    (DeiT-Tiny: fine-tuned only)
    cost-K          the budget of untrained-K, a trained search with the settings of `sites`
The arm that is compared with `sites` is chosen by validation accuracy among those that keep to a third fewer
rounds and no more bytes; all are written down. Every cell is a run folder: what is finished is read, what was
interrupted goes on. Teachers and searches by sites are those of digits.py, cifar10_small.py --long and
fitted_training.py. Predicted and measured bytes and rounds are of semi2k-benchmark (which is not private:
see docs/security.md). The end is docs/results/cost-budget.json and docs/results/cost-budget.png.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Public, load_artifact, save_artifact
from privit.cli.budgeting import FITTED
from privit.config import Budget, FinetuneConfig, SearchConfig, free_choices, spend
from privit.cost.budgets.pricing import Price
from privit.cost.spu.predict import estimate_spu
from privit.data.datasets import preprocess_split
from privit.errors import RequestError
from privit.plan import all_weight_shapes
from privit.presets import DIGITS_MODEL, preset
from privit.runs import load_run, write_text
from privit.serve.measure.bench import bench
from privit.serve.measure.measure import measure_queries
from privit.train.finetune import export, finetune
from privit.train.fitting.fit import FitConfig
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.search import search
from privit.train.stages import read_model
from privit.train.teacher import train_teacher
from privit.train.training_free import TrainingFreeConfig, fitted_start, search_without_training

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "cost-budget"
RESULT = ROOT / "docs" / "results" / "cost-budget.json"
FIGURE = RESULT.with_suffix(".png")
PRICE = Price("seconds", "semi2k-benchmark", "wan")
FACTORS = {"1.6": 1.6, "2": 2.0, "2.4": 2.4}
ROUNDS_MUST = 1.5
BYTES_MARGIN = 0.98
"""Fine-tuning may change a model's ranges, and with them what its program sends by a little."""
RANGE_IMAGES = 256


@dataclass(frozen=True)
class Model:
    """A model and data set: its seeds, where its runs are, and the settings of search and fine-tuning.

    `runs` gives the folders of a seed's teacher, search by sites and its fine-tuning, trained where missing;
    `fitted` those of search and fine-tuning with fitted stand-ins, where another benchmark has them.
    `even` gives the capped arms the epochs of the search by sites, too.
    """

    seeds: tuple[int, ...]
    runs: Callable[[int], tuple[Path, Path, Path]]
    settings: Callable[[int], tuple[SearchConfig, FinetuneConfig]]
    fitted: tuple[Path, Path] | None = None
    factors: tuple[str, ...] = tuple(FACTORS)
    capped: tuple[str, ...] = ()
    even: bool = True


def _digits_runs(seed: int) -> tuple[Path, Path, Path]:
    folder, chosen = ROOT / "runs" / "digits" / f"seed-{seed}", preset("digits")
    searching, tuning = _digits_settings(seed)
    teacher = replace(chosen.teacher, seed=seed, data_seed=seed)
    train_teacher(DIGITS_MODEL, "digits", folder / "teacher", teacher)
    search(folder / "teacher", folder / "search", searching)
    finetune(folder / "search", folder / "finetune", tuning)
    return folder / "teacher", folder / "search", folder / "finetune"


def _digits_settings(seed: int) -> tuple[SearchConfig, FinetuneConfig]:
    chosen = preset("digits")
    return replace(chosen.search, seed=seed), replace(chosen.finetune, seed=seed)


def _cifar_runs(seed: int) -> tuple[Path, Path, Path]:
    import cifar10_small as small

    small.run_seed(small.LONG, seed)
    folder = small.LONG.runs / f"seed-{seed}"
    return folder / "teacher", folder / "search", folder / "privit"


def _cifar_settings(seed: int) -> tuple[SearchConfig, FinetuneConfig]:
    import cifar10_small as small

    return small.search_config(small.LONG, seed), small.finetune_config(small.LONG, seed)


def _deit_runs(seed: int) -> tuple[Path, Path, Path]:
    import fitted_training

    fitted_training.run_cell("10", "paper")
    runs = fitted_training.RUNS
    return fitted_training.TEACHER, runs / "search-paper", runs / "10-paper"


def _deit_settings(seed: int) -> tuple[SearchConfig, FinetuneConfig]:
    import fitted_training

    return fitted_training.search_config("fitted"), fitted_training.finetune_config()


DEIT_RUNS = ROOT / "runs" / "fitted"
MODELS = {
    "digits": Model((3, 4, 5), _digits_runs, _digits_settings),
    "cifar10": Model((0, 1, 2), _cifar_runs, _cifar_settings, factors=("2", "2.4"), capped=("2",)),
    "deit": Model(
        (0,),
        _deit_runs,
        _deit_settings,
        (DEIT_RUNS / "search-fitted", DEIT_RUNS / "10-fitted"),
        (),
        ("1.6",),
        even=False,
    ),
}


def run_seed(name: str, seed: int, trained: bool) -> dict[str, Any]:
    """Every arm of one seed; accuracy, predicted and measured cost, what was kept."""
    model, folder = MODELS[name], RUNS / name / f"seed-{seed}"
    teacher, counted, known = model.runs(seed)
    searching, tuning = model.settings(seed)
    cells = {"sites": _figures(folder / "sites", counted, known)}
    asked = cells["sites"]["predicted"]["seconds"]
    budgets = tuple(spend(round(asked / FACTORS[k], 3), k) for k in model.factors)
    free, fits = free_choices(FITTED), FitConfig(seed=seed)
    bare = TrainingFreeConfig(free=free, price=PRICE, fit=fits)
    arms: dict[str, tuple[Path, str, FinetuneConfig]] = {}
    if budgets:
        search_without_training(teacher, folder / "search-untrained", replace(bare, budgets=budgets))
        arms = {f"untrained-{k}": (folder / "search-untrained", k, tuning) for k in model.factors}
    most = round(BYTES_MARGIN * cells["sites"]["measured"]["sent_bytes"])
    for k in model.capped:
        capped = Budget({}, k, most, {"seconds": round(asked / FACTORS[k], 3)})
        source = folder / f"search-capped-{k}"
        in_bytes = replace(bare, budgets=(capped,), price=replace(PRICE, unit="bytes"))
        search_without_training(teacher, source, in_bytes)
        more = cells["sites"]["epochs"]["search"] if model.even else 0
        longer = replace(tuning, epochs=tuning.epochs + more)
        arms[f"capped-{k}"] = (source, k, longer)
    if model.fitted and all((run / "result.json").is_file() for run in model.fitted):
        cells["sites-fitted"] = _figures(folder / "sites-fitted", *model.fitted)
    if trained:
        initial = fitted_start(teacher, searching.granularity, FITTED, fits)
        priced = replace(searching, budgets=budgets, stand_in=FITTED, free=free, price=PRICE)
        search(teacher, folder / "search-cost", priced, initial)
        arms |= {f"cost-{k}": (folder / "search-cost", k, tuning) for k in model.factors}
        if not model.fitted:
            search(teacher, folder / "search-fitted", replace(searching, stand_in=FITTED), initial)
            finetune(folder / "search-fitted", folder / "tuned-fitted", tuning)
            cells["sites-fitted"] = _figures(
                folder / "sites-fitted", folder / "search-fitted", folder / "tuned-fitted"
            )
    for arm, (source, budget, settings) in arms.items():
        finetune(source, folder / arm, settings, budget)
        cells[arm] = _figures(folder / arm, source, folder / arm, budget)
    return {"seed": seed, "teacher": (load_run(teacher).result() or {})["accuracy"], "arms": cells}


def _figures(folder: Path, searched: Path, tuned: Path, budget: str | None = None) -> dict[str, Any]:
    """One fine-tuned arm: exported, its cost predicted and measured, once; the notes are kept in `folder`."""
    notes = folder / "cost.json"
    if not notes.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        refused = exported(tuned, folder / "artifact")
        write_text(notes, json.dumps(_costs(folder / "artifact") | {"export_refused": refused}) + "\n")
    timed = folder / "wan.json"
    if not timed.is_file():
        (run,) = measure_queries(folder / "artifact", PRICE.protocol, [(PRICE.network, 1)])
        write_text(timed, json.dumps({"wan_seconds": run["seconds"]}) + "\n")
    found, result = load_run(searched).result() or {}, load_run(tuned).result() or {}
    figures = {key: result[key] for key in ("accuracy", "validation_accuracy", "kept")}
    figures |= json.loads(notes.read_text()) | json.loads(timed.read_text())
    figures["epochs"] = {"search": found["epochs"], "finetune": result["epochs"]}
    if budget:
        figures |= {key: found["budgets"][budget][key] for key in ("budget_cost", "predicted_cost")}
    return figures


def exported(tuned: Path, folder: Path) -> str:
    """Exports a model; where its values are too large to be served, its program alone, and says why."""
    try:
        export(tuned, folder)
        return ""
    except RequestError as error:
        model = read_model(load_run(tuned))
        subject, student = model.subject, model.student()
        validation = subject.load().validation
        count = np.arange(min(len(validation), RANGE_IMAGES))
        ranges = measure_ranges(student, preprocess_split(validation, subject.preprocessing, count))
        public = Public(subject.spec, subject.preprocessing, tuple(subject.class_names), ranges)
        shapes = all_weight_shapes(subject.spec, model.plan)
        save_artifact(folder, public, model.plan, {name: student.weights()[name] for name in shapes})
        return error.message


def _costs(artifact: Path) -> dict[str, Any]:
    loaded = load_artifact(artifact)
    ranges = loaded.public.ranges
    found = estimate_spu(loaded.spec, loaded.plan, PRICE.protocol, PRICE.network, ranges)
    lan = estimate_spu(loaded.spec, loaded.plan, PRICE.protocol, "lan", ranges)
    predicted = {key: found[key] for key in ("sent_bytes", "rounds", "seconds")} | {
        "lan_seconds": lan["seconds"]
    }
    counted = bench(artifact, protocol=PRICE.protocol)
    return {"predicted": predicted, "measured": {key: counted[key] for key in ("sent_bytes", "rounds")}}


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def summarize(name: str, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and for each arm how it compares with `sites`."""
    rows: dict[str, Any] = {}
    for arm in seeds[0]["arms"]:
        cells = [seed["arms"][arm] for seed in seeds]
        first = [seed["arms"]["sites"] for seed in seeds]
        gains = [c["accuracy"] - f["accuracy"] for c, f in zip(cells, first, strict=True)]
        spread = _deviation([f["accuracy"] for f in first])
        rows[arm] = {
            "validation_accuracy": statistics.mean(c["validation_accuracy"] for c in cells),
            "accuracy": statistics.mean(c["accuracy"] for c in cells),
            "rounds": statistics.mean(c["measured"]["rounds"] for c in cells),
            "sent_bytes": statistics.mean(c["measured"]["sent_bytes"] for c in cells),
            "wan_seconds": statistics.mean(c["wan_seconds"] for c in cells),
            "predicted_wan_seconds": statistics.mean(c["predicted"]["seconds"] for c in cells),
            "accuracy_deviation": _deviation([c["accuracy"] for c in cells]),
            "accuracy_gained": statistics.mean(gains),
            "spread_of_sites": spread,
            "fewer_rounds": [
                f["measured"]["rounds"] / c["measured"]["rounds"] for c, f in zip(cells, first, strict=True)
            ],
            "bytes_of_sites": [
                c["measured"]["sent_bytes"] / f["measured"]["sent_bytes"]
                for c, f in zip(cells, first, strict=True)
            ],
        }
    fits = {
        arm: row["validation_accuracy"]
        for arm, row in rows.items()
        if min(row["fewer_rounds"]) >= ROUNDS_MUST and max(row["bytes_of_sites"]) <= 1.0
    }
    chosen = max(fits, key=lambda arm: fits[arm]) if fits else None
    return {
        "command": f"python benchmarks/cost_budget.py --on {name}",
        "chosen_on_validation": chosen,
        "holds": chosen is not None
        and rows[chosen]["accuracy_gained"] >= -max(rows[chosen]["spread_of_sites"], 1e-3),
        "teacher": statistics.mean(seed["teacher"] for seed in seeds),
        "arms": rows,
        "seeds": seeds,
    }


FAMILIES = {
    "sites": ("#D55E00", "s", "budget in sites: PriViT, 10 % + 10 %"),
    "sites-fitted": ("#E69F00", "^", "budget in sites, fitted stand-ins"),
    "untrained": ("#0072B2", "o", "budget in WAN seconds, chosen without training"),
    "capped": ("#CC79A7", "P", "budget in bytes and WAN seconds, no more epochs than PriViT"),
    "cost": ("#009E73", "D", "budget in WAN seconds, searched"),
}
PANELS = (
    ("rounds", "rounds", 1.0),
    ("sent_bytes", "MB that one party sends", 1e6),
    ("wan_seconds", "seconds over the WAN, measured", 1.0),
)


def _family(arm: str) -> str:
    return arm if arm in FAMILIES else arm.rpartition("-")[0]


def draw(results: dict[str, Any], path: Path) -> None:
    """Accuracy against rounds, bytes and measured WAN seconds, a row of panels for each model."""
    from matplotlib.figure import Figure

    names = [name for name in MODELS if name in results]
    figure = Figure(figsize=(10, 3.2 * len(names) + 0.6), layout="constrained")
    panels = figure.subplots(len(names), len(PANELS), squeeze=False)
    for row, name in zip(panels, names, strict=True):
        arms = results[name]["arms"]
        for axes, (key, label, unit) in zip(row, PANELS, strict=True):
            for family, (colour, marker, shown) in FAMILIES.items():
                found = [figures for arm, figures in arms.items() if _family(arm) == family]
                axes.errorbar(
                    [f[key] / unit for f in found],
                    [100 * f["accuracy"] for f in found],
                    [100 * f["accuracy_deviation"] for f in found],
                    fmt=marker,
                    color=colour,
                    capsize=3,
                    label=shown if found else None,
                )
            axes.axhline(100 * results[name]["teacher"], color="grey", linestyle=":", linewidth=1)
            axes.set_xlim(0, 1.08 * max(figures[key] / unit for figures in arms.values()))
            axes.set(xlabel=label, title=name)
        row[0].set_ylabel("accuracy, %")
    handles = {
        text: handle
        for axes in figure.axes
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Runs what is left of the seeds asked for; writes and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--on", choices=tuple(MODELS), default="digits")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--trained", action="store_true", help="the trained searches under cost, too")
    arguments = parser.parse_args()
    seeds = tuple(arguments.seeds or MODELS[arguments.on].seeds)
    known = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    done: list[dict[str, Any]] = []
    for seed in seeds:
        done.append(run_seed(arguments.on, seed, arguments.trained))
        known[arguments.on] = summarize(arguments.on, done)
        write_text(RESULT, json.dumps(known, indent=2) + "\n")
        draw(known, FIGURE)
    print(json.dumps(known[arguments.on]["arms"], indent=2))


if __name__ == "__main__":
    main()
