"""Budgets in cost against budgets in sites: accuracy against rounds, bytes and WAN seconds of one prediction.

    python benchmarks/cost_budget.py --on digits                  three seeds, about three CPU minutes each
    python benchmarks/cost_budget.py --on cifar10                 the small ViT at 32 px, three seeds
    python benchmarks/cost_budget.py --on deit                    DeiT-Tiny at 112 px, one seed

Every arm has the same teacher, search settings, fine-tuning epochs and seed:
    sites           PriViT as published: 10 % of the GELUs and of the softmaxes, the paper's stand-ins
    sites-fitted    the same counts, with stand-ins fitted to the teacher
    cost-K          a trained search under 1/K of the WAN seconds that `sites` is predicted to take
    untrained-K     the same budget, the plan chosen without training, then fine-tuned alike
Every cell is a run folder: what is finished is read, what was interrupted goes on. Predicted and measured
bytes and rounds are of semi2k-benchmark (which is not private: see docs/security.md). The end is
docs/results/cost-budget.json and docs/results/cost-budget.png.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privit.artifact import load_artifact
from privit.cli.budgeting import FITTED, measured
from privit.config import FinetuneConfig, SearchConfig, free_choices, keep, spend
from privit.cost.pricing import Price
from privit.cost.spu import estimate_spu
from privit.presets import DIGITS_MODEL, preset
from privit.runs import load_run, write_text
from privit.train.finetune import export, finetune
from privit.train.fit import FitConfig
from privit.train.search import search
from privit.train.teacher import train_teacher
from privit.train.training_free import TrainingFreeConfig, fitted_start, search_without_training

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "cost-budget"
RESULT = ROOT / "docs" / "results" / "cost-budget.json"
KNOWN = ROOT / "runs" / "digits"
FIGURE = RESULT.with_suffix(".png")
PRICE = Price("seconds", "semi2k-benchmark", "wan")
SHARE = 0.1
FACTORS = {"1.5": 1.5, "2": 2.0, "2.2": 2.2}
ROUNDS_MUST = 1.5


@dataclass(frozen=True)
class Model:
    """A model and data set: its seeds, how its teacher is had, and the settings of search and fine-tuning."""

    seeds: tuple[int, ...]
    teacher: Callable[[int, Path], Path]
    settings: Callable[[int], tuple[SearchConfig, FinetuneConfig]]


def _digits_teacher(seed: int, folder: Path) -> Path:
    config = replace(preset("digits").teacher, seed=seed, data_seed=seed)
    known = KNOWN / f"seed-{seed}" / "teacher"
    if (known / "result.json").is_file():
        return known
    train_teacher(DIGITS_MODEL, "digits", folder / "teacher", config)
    return folder / "teacher"


def _digits_settings(seed: int) -> tuple[SearchConfig, FinetuneConfig]:
    chosen = preset("digits")
    return replace(chosen.search, seed=seed), replace(chosen.finetune, seed=seed)


def _cifar_teacher(seed: int, folder: Path) -> Path:
    import cifar10_small as small

    known = small.SHORT.runs / f"seed-{seed}" / "teacher"
    train_teacher(small.MODEL, str(small.DATA), known, small.teacher_config(small.SHORT, seed))
    return known


def _cifar_settings(seed: int) -> tuple[SearchConfig, FinetuneConfig]:
    import cifar10_small as small

    return small.search_config(small.SHORT, seed), small.finetune_config(small.SHORT, seed)


def _deit_teacher(seed: int, folder: Path) -> Path:
    import fitted_teacher

    fitted_teacher.teacher()
    return fitted_teacher.TEACHER


def _deit_settings(seed: int) -> tuple[SearchConfig, FinetuneConfig]:
    import cifar10_small as small
    import fitted_training

    searching = replace(small.search_config(small.SHORT, seed), batch_size=64, learning_rate=1e-4, epochs=8)
    return searching, replace(fitted_training.finetune_config(3), seed=seed)


MODELS = {
    "digits": Model((3, 4, 5), _digits_teacher, _digits_settings),
    "cifar10": Model((0, 1, 2), _cifar_teacher, _cifar_settings),
    "deit": Model((0,), _deit_teacher, _deit_settings),
}


def run_seed(name: str, seed: int, trained: bool) -> dict[str, Any]:
    """Every arm of one seed; accuracy, predicted and measured cost, what was kept."""
    model, folder = MODELS[name], RUNS / name / f"seed-{seed}"
    teacher = model.teacher(seed, folder)
    searching, tuning = model.settings(seed)
    counted = replace(searching, budgets=(keep(SHARE),))
    if not (name == "digits" and (KNOWN / f"seed-{seed}" / "search" / "result.json").is_file()):
        search(teacher, folder / "search-sites", counted)
    arms: dict[str, tuple[Path, str | None]] = {"sites": (_sites(name, seed, folder), None)}
    reference = _tuned(folder, "sites", *arms["sites"], tuning)
    budgets = tuple(spend(round(reference["predicted"]["seconds"] / f, 3), k) for k, f in FACTORS.items())
    free, fits = free_choices(FITTED), FitConfig(seed=seed)
    chosen = TrainingFreeConfig(budgets=budgets, free=free, price=PRICE, fit=fits)
    search_without_training(teacher, folder / "search-untrained", chosen)
    arms |= {f"untrained-{k}": (folder / "search-untrained", k) for k in FACTORS}
    if trained:
        initial = fitted_start(teacher, counted.granularity, FITTED, fits)
        priced = replace(searching, budgets=budgets, stand_in=FITTED, free=free, price=PRICE)
        search(teacher, folder / "search-cost", priced, initial)
        arms |= {f"cost-{k}": (folder / "search-cost", k) for k in FACTORS}
        search(teacher, folder / "search-fitted", replace(counted, stand_in=FITTED), initial)
        arms["sites-fitted"] = (folder / "search-fitted", None)
    cells = {arm: _tuned(folder, arm, *source, tuning) for arm, source in arms.items()}
    return {"seed": seed, "teacher": (load_run(teacher).result() or {})["accuracy"], "arms": cells}


def _sites(name: str, seed: int, folder: Path) -> Path:
    """The search by sites: benchmarks/digits.py has the same one, seed by seed."""
    own = folder / "search-sites"
    return own if own.is_dir() or name != "digits" else KNOWN / f"seed-{seed}" / "search"


def _tuned(
    folder: Path, arm: str, source: Path, budget: str | None, config: FinetuneConfig
) -> dict[str, Any]:
    """One arm fine-tuned, exported, its cost predicted and measured."""
    result = finetune(source, folder / arm, config, budget)
    known = folder / arm / "cost.json"
    if not known.is_file():
        artifact = folder / arm / "artifact"
        export(folder / arm, artifact)
        write_text(known, json.dumps(_costs(artifact)) + "\n")
    found = load_run(source).result() or {}
    asked = found["budgets"][budget] if budget else found
    figures = {"accuracy": result["accuracy"], "kept": result["kept"], **json.loads(known.read_text())}
    figures["epochs"] = {"search": found["epochs"], "finetune": result["epochs"]}
    if budget:
        figures |= {key: asked[key] for key in ("budget_cost", "predicted_cost")}
    return figures


def _costs(artifact: Path) -> dict[str, Any]:
    loaded = load_artifact(artifact)
    ranges = loaded.public.ranges
    found = estimate_spu(loaded.spec, loaded.plan, PRICE.protocol, PRICE.network, ranges)
    lan = estimate_spu(loaded.spec, loaded.plan, PRICE.protocol, "lan", ranges)
    predicted = {key: found[key] for key in ("sent_bytes", "rounds", "seconds")} | {
        "lan_seconds": lan["seconds"]
    }
    return {"predicted": predicted, "measured": measured(artifact, vars(PRICE))["measured"]}


def summarize(name: str, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and for each arm how it compares with `sites`."""
    rows: dict[str, Any] = {}
    for arm in seeds[0]["arms"]:
        cells = [seed["arms"][arm] for seed in seeds]
        first = [seed["arms"]["sites"] for seed in seeds]
        gains = [c["accuracy"] - f["accuracy"] for c, f in zip(cells, first, strict=True)]
        spread = statistics.stdev([f["accuracy"] for f in first]) if len(first) > 1 else 0.0
        rows[arm] = {
            "accuracy": statistics.mean(c["accuracy"] for c in cells),
            "rounds": statistics.mean(c["measured"]["rounds"] for c in cells),
            "sent_bytes": statistics.mean(c["measured"]["sent_bytes"] for c in cells),
            "wan_seconds": statistics.mean(c["predicted"]["seconds"] for c in cells),
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
        row = rows[arm]
        row["holds"] = (
            row["accuracy_gained"] >= -max(spread, 1e-3)
            and min(row["fewer_rounds"]) >= ROUNDS_MUST
            and max(row["bytes_of_sites"]) <= 1.0
        )
    return {
        "command": f"python benchmarks/cost_budget.py --on {name}",
        "holds": any(row["holds"] for row in rows.values()),
        "teacher": statistics.mean(seed["teacher"] for seed in seeds),
        "arms": rows,
        "seeds": seeds,
    }


def draw(results: dict[str, Any], path: Path) -> None:
    """Accuracy against rounds, bytes and WAN seconds, a row of panels for each model."""
    from matplotlib.figure import Figure

    names = [name for name in MODELS if name in results]
    figure = Figure(figsize=(10, 3.2 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 3, squeeze=False)
    colours = {"sites": "#D55E00", "sites-fitted": "#E69F00", "untrained": "#0072B2", "cost": "#009E73"}
    for row, name in zip(panels, names, strict=True):
        for axes, (key, label, unit) in zip(
            row,
            (("rounds", "rounds", 1.0), ("sent_bytes", "MB", 1e6), ("wan_seconds", "WAN seconds", 1.0)),
            strict=True,
        ):
            shown: set[str] = set()
            for arm, figures in results[name]["arms"].items():
                family = arm if arm in colours else arm.split("-")[0]
                axes.scatter(
                    figures[key] / unit,
                    100 * figures["accuracy"],
                    color=colours[family],
                    label=None if family in shown else family,
                )
                shown.add(family)
            axes.axhline(100 * results[name]["teacher"], color="grey", linestyle=":", linewidth=1)
            axes.set(xlabel=label, ylabel="accuracy, %", title=name)
        row[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Runs what is left of the seeds asked for; writes and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--on", choices=tuple(MODELS), default="digits")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--untrained", action="store_true", help="leave out the trained searches under cost")
    arguments = parser.parse_args()
    seeds = tuple(arguments.seeds or MODELS[arguments.on].seeds)
    known = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    done: list[dict[str, Any]] = []
    for seed in seeds:
        done.append(run_seed(arguments.on, seed, not arguments.untrained))
        known[arguments.on] = summarize(arguments.on, done)
        write_text(RESULT, json.dumps(known, indent=2) + "\n")
        draw(known, FIGURE)
    print(json.dumps(known[arguments.on]["arms"], indent=2))


if __name__ == "__main__":
    main()
