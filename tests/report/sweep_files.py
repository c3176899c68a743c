"""A sweep's folder as `privit sweep` leaves it; its accuracies are made up, only to be shown."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from privit.cost.estimate import estimate
from privit.plan import Plan, plan_from_counts, save_plan, uniform_plan
from privit.spec import KINDS, Spec, vit_spec

SPEC = vit_spec(image_size=8, patch_size=2, width=16, depth=4, heads=2, classes=10, channels=1)
MODEL = "vit:image_size=8,patch=2,width=16,depth=4,heads=2,channels=1"
SPU_FIGURES = ("sent_bytes", "rounds", "seconds")
BUDGETS = ((4, 8), (12, 24), (34, 68))
"""GELU tokens and softmax rows."""
LABELS = {
    "privit-g": "PriViT-G",
    "privit-r": "PriViT-R",
    "mpcvit": "MPCViT",
    "mpcvit-plus": "MPCViT+",
    "mpcformer": "MPCFormer",
    "snl": "SNL",
    "dense": "dense",
}


def spread_plan(spec: Spec, gelu: int, softmax: int) -> Plan:
    """A plan that keeps these many sites, the first layers more than the last."""
    weights = np.arange(spec.depth, 0, -1) / np.arange(spec.depth, 0, -1).sum()
    counts = []
    for total, most in ((gelu, spec.tokens), (softmax, spec.tokens * spec.blocks[0].heads)):
        found = np.minimum(np.floor(total * weights), most).astype(int)
        for layer in range(spec.depth):
            found[layer] += min(most - found[layer], total - int(found.sum()))
        counts.append([int(n) for n in found])
    return plan_from_counts(spec, counts[0], counts[1])


@lru_cache(maxsize=64)
def cost_of(budget: tuple[int, int] | None) -> dict[str, Any]:
    """What a cell says of its cost."""
    plan = plan_of(budget)
    relu_ops, and_gates = (estimate(SPEC, plan, profile) for profile in ("paper", "circuits"))
    found = {n: estimate(SPEC, plan, "spu", protocol="semi2k-benchmark", network=n) for n in ("lan", "wan")}
    spu = {n: {key: f[key] for key in SPU_FIGURES} for n, f in found.items()}
    return {
        "relu_ops": relu_ops.total,
        "and_gates": and_gates.total,
        "by_part": {"relu_ops": relu_ops.to_json()["by_part"]},
        "spu": {"semi2k-benchmark": spu},
    }


def plan_of(budget: tuple[int, int] | None) -> Plan:
    """A plan that keeps these many GELU tokens and softmax rows; None keeps all."""
    return uniform_plan(SPEC) if budget is None else spread_plan(SPEC, *budget)


class SweepFiles:
    """Writes cells one by one, then the index."""

    def __init__(self, root: Path):
        self.root = root
        self.entries: list[dict[str, Any]] = []
        self.experiments: dict[str, dict[str, Any]] = {}

    def experiment(self, name: str, shows: list[str], paper: str = "", **fields: Any) -> None:
        """Announces an experiment; its methods are those of its cells."""
        self.experiments[name] = {
            "name": name,
            "title": name.capitalize(),
            "paper": paper,
            "shows": shows,
            "note": "",
            "methods": [],
        } | fields

    def cell(
        self,
        experiment: str,
        method: str,
        budget: tuple[int, int] | None,
        seed: int,
        accuracy: float,
        in_cost: dict[str, Any] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """One finished cell; `fields` replace what it would say, `in_cost` what it would of its budget."""
        plan = plan_of(budget)
        name = "all" if budget is None else f"{budget[0]}-{budget[1]}"
        name = (in_cost or {}).get("name", name)
        sites = {kind: sum(plan.kept(kind)) for kind in KINDS}
        cost = cost_of(budget)
        lan = cost["spu"]["semi2k-benchmark"]["lan"]
        label = LABELS.get(method, method)
        methods = self.experiments[experiment]["methods"]
        if label not in [entry["label"] for entry in methods]:
            methods.append({"name": method, "label": label, "about": f"What {label} does."})
        path = f"cells/{experiment}/{method}/{name}/seed-{seed}/cell.json"
        losses = np.random.default_rng(seed).uniform(0, 0.1, SPEC.classes)
        data = {
            "status": "done",
            "experiment": experiment,
            "shows": self.experiments[experiment]["shows"],
            "method": method,
            "label": label,
            "seed": seed,
            "budget": {"name": name, "asked": {}, "sites": sites} | (in_cost or {}),
            "model": MODEL,
            "data": "digits",
            "class_names": [f"class {i}" for i in range(SPEC.classes)],
            "run": f"stages/{method}-{name}-{seed}",
            "accuracy": accuracy,
            "per_class_accuracy": [accuracy - float(loss) for loss in losses],
            "teacher_accuracy": 0.97,
            "teacher_per_class_accuracy": [0.97] * SPEC.classes,
            "kept": {kind: plan.kept(kind) for kind in KINDS},
            "sites": {kind: plan.total(kind) for kind in KINDS},
            "granularity": vars(plan.granularity),
            "kept_gelu_elements": plan.kept_gelu_elements(SPEC),
            "kept_softmax_rows": plan.kept_softmax_rows(SPEC),
            "cost": cost,
            "measured": {
                "semi2k-benchmark": {
                    "sent_bytes": 1.01 * lan["sent_bytes"],
                    "rounds": lan["rounds"],
                    "measured_on": "simulated",
                }
            },
            "warnings": [],
        } | fields
        self._write(path, data)
        self.entries.append(
            {"cell": path, "status": data["status"], "experiment": experiment, "method": method}
            | {"budget": name, "seed": seed}
        )
        run = self.root / data["run"]
        run.mkdir(parents=True, exist_ok=True)
        (run / "model.json").write_text(json.dumps({"spec": SPEC.to_json()}))
        save_plan(plan, run / "plan.safetensors")
        return data

    def finish(self, **fields: Any) -> Path:
        """Writes sweep.json and gives the folder."""
        recipe = {
            "file": "recipes/mini/quick.toml",
            "title": "Quick",
            "model": MODEL,
            "data": "digits",
            "seeds": [0, 1],
            "settings": {"search": {"epochs": 80, "learning_rate": 5e-4}},
            "experiments": list(self.experiments.values()),
            "cells": self.entries,
            "seconds": 120.0,
            "jobs": 2,
            "cores": 2,
        } | fields
        self._write("sweep.json", {"format": 1, "recipes": {"mini/quick": recipe}})
        return self.root

    def _write(self, path: str, data: dict[str, Any]) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(data))


def small_sweep(root: Path) -> Path:
    """One comparison of methods, two seeds, a failed cell; of few costs, since pictures take time."""
    files = SweepFiles(root)
    files.experiment("pareto", ["front"], "fig: pareto curve c10/100")
    for seed in (0, 1):
        _compare(files, seed, ("seconds",))
    files.cell("pareto", "mpcvit-plus", (4, 8), 0, 0.9, status="failed", error="the loss became NaN")
    return files.finish()


def full_sweep(root: Path) -> Path:
    """Every kind of experiment, two seeds."""
    files = SweepFiles(root)
    files.experiment("pareto", ["front", "layers", "breakdown", "seconds"], "fig: pareto curve c10/100")
    files.experiment("attention", ["softmax"], "fig:C100-softmax-candidatee")
    files.experiment("gelu-only", ["gelu"], "fig:GELU_plot")
    files.experiment("grid", ["grid"], "fig:grid_search_privit")
    files.experiment("strategies", ["table"], "tab:finetuning")
    files.experiment("degradation", ["degradation"], "tab:perf degradation")
    files.experiment(
        "distribution", ["layers"], "fig:ti_pretrain_ablate_GELU, fig:ti_pretrain_ablate_softmax"
    )
    for seed in (0, 1):
        noise = 0.004 * seed
        _compare(files, seed)
        for i, budget in enumerate(BUDGETS):
            files.cell("attention", "SquaredAttn", (68, budget[1]), seed, 0.95 + 0.005 * i + noise)
            files.cell("attention", "ScaleAttn", (68, budget[1]), seed, 0.91 + 0.02 * i + noise)
            files.cell("gelu-only", "privit-g", (budget[0], 136), seed, 0.94 + 0.01 * i + noise)
            for j, softmax in enumerate((8, 24, 68)):
                files.cell("grid", "privit-g", (budget[0], softmax), seed, 0.9 + 0.015 * i + 0.01 * j + noise)
            files.cell("strategies", "strategy 1", budget, seed, 0.91 + 0.02 * i + noise)
            files.cell("strategies", "strategy 5", budget, seed, 0.92 + 0.02 * i + noise)
            files.cell("degradation", "privit-g", budget, seed, 0.91 + 0.02 * i + noise)
        files.cell("distribution", "privit-g", (12, 24), seed, 0.93)
        files.cell("distribution", "no pretraining", (12, 24), seed, 0.92)
    return files.finish()


def _compare(files: SweepFiles, seed: int, costs: tuple[str, ...] = SPU_FIGURES) -> None:
    def cell(method: str, budget: tuple[int, int] | None, accuracy: float) -> None:
        measured: dict[str, Any] = {} if costs == SPU_FIGURES else {"measured": {}}
        files.cell("pareto", method, budget, seed, accuracy, cost=some_costs(budget, costs), **measured)

    noise = 0.004 * seed
    for i, budget in enumerate(BUDGETS):
        cell("privit-g", budget, 0.91 + 0.02 * i + noise)
        cell("privit-r", budget, 0.90 + 0.02 * i + noise)
        cell("mpcvit", budget, (0.90, 0.95, 0.94)[i] + noise)
        cell("snl", (budget[0], 136), 0.93 + 0.01 * i + noise)
    cell("mpcformer", (0, 0), 0.92 + noise)
    cell("dense", None, 0.97)


def some_costs(budget: tuple[int, int] | None, costs: tuple[str, ...]) -> dict[str, Any]:
    """What a cell says of its cost, and of the engine's figures only these."""
    whole = cost_of(budget)
    spu = {n: {key: found[key] for key in costs} for n, found in whole["spu"]["semi2k-benchmark"].items()}
    return whole | {"spu": {"semi2k-benchmark": spu}}
