"""What a sweep leaves for a report: one cell.json per result, and sweep.json over all of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from privit.config import to_json
from privit.cost.budgets.price import Unit
from privit.runs import read_json, write_text
from privit.sweep.methods import Method
from privit.sweep.recipe.recipe import Experiment, Recipe, Setting
from privit.sweep.run.tasks import Cell

FORMAT = 1
ANSWERS = {"bench": "measured"}
"""What a stage found is in a cell under the stage's name, but for this one."""


def result_of(out: Path, task: str) -> dict[str, Any] | None:
    """What a finished task left in result.json, or None."""
    path = out / "stages" / task / "result.json"
    return read_json(path) if path.is_file() else None


def write_cell(out: Path, cell: Cell, error: str | None = None) -> str:
    """Writes a cell's file from what its tasks left; gives done, failed or missing."""
    result = result_of(out, cell.result)
    asked = {task: result_of(out, task) for task in cell.asked}
    if error is None and (result is None or None in asked.values()):
        return "missing"
    status = "done" if error is None else "failed"
    answers: dict[str, dict[str, Any]] = {"measured": {}, "agreement": {}, "private": {}}
    for task, found in asked.items():
        if found is not None:
            kind, on = task.partition("-")[0], [found["protocol"], found.get("network")]
            answers[ANSWERS.get(kind, kind)]["/".join(filter(None, on))] = found
    content: dict[str, Any] = {"format": FORMAT, "status": status, "identity": _identity(cell)}
    content |= _about(cell) | (result or {}) | answers | {"error": error}
    if result is not None:
        content["budget"]["sites"] = {kind: sum(kept) for kind, kept in result["kept"].items()}
        if cell.price is not None:
            content["budget"]["predicted_cost"] = content.pop("predicted_cost", None)
    path = out / cell.folder / "cell.json"
    text = json.dumps(content, indent=2) + "\n"
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return status


def write_index(
    out: Path, recipe: Recipe, cells: list[Cell], statuses: dict[str, str], facts: dict[str, Any]
) -> None:
    """Puts the recipe's entry into sweep.json; the entries of other recipes stay."""
    path = out / "sweep.json"
    index: dict[str, Any] = read_json(path) if path.is_file() else {"format": FORMAT, "recipes": {}}
    first = recipe.experiments[0].setting
    index["recipes"][recipe.name] = {
        "file": _shown(recipe.file),
        "title": recipe.title,
        "expect": recipe.expect,
        **_setting(first),
        "experiments": [_experiment(experiment) for experiment in recipe.experiments],
        "cells": [
            {
                "cell": f"{cell.folder}/cell.json",
                "status": statuses.get(cell.folder, "missing"),
                "experiment": cell.experiment.name,
                "method": cell.method.name,
                "budget": cell.budget.name,
                "seed": cell.seed,
            }
            for cell in cells
        ],
        **facts,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(index, indent=2) + "\n")


def _about(cell: Cell) -> dict[str, Any]:
    experiment = cell.experiment
    return {
        "recipe": experiment.setting.recipe,
        "size": experiment.setting.size,
        "experiment": experiment.name,
        "paper": experiment.paper,
        "shows": list(experiment.shows),
        "method": cell.method.name,
        "label": cell.method.label,
        "student": cell.method.student_of(cell.budget.name),
        "student_label": _student_label(cell),
        "seed": cell.seed,
        "budget": _budget(cell),
        "model": experiment.setting.model,
        "data": experiment.setting.data,
    }


def _budget(cell: Cell) -> dict[str, Any]:
    """The budget as the recipe states it; one in cost with the price that it is stated in."""
    budget, price = cell.budget, cell.price
    if price is None:
        return {"name": budget.name, "asked": dict(budget.sites)}
    asked = {price.unit: budget.cost} | budget.caps | budget.sites
    return {"name": budget.name, "asked": asked, "price": vars(price).copy()}


def _student_label(cell: Cell) -> str:
    """The method and, where it has models under several budgets, what this one may keep or cost."""
    budget, price = cell.budget, cell.price
    if not cell.method.many:
        return cell.method.label
    if price is None:
        kept = {kind: budget.sites[kind] for kind in cell.method.kinds if kind in budget.sites}
        shares = [f"{100 * v:g} %" if isinstance(v, float) else f"{v:,}" for v in kept.values()]
        said = " + ".join(shares) + (f" of {next(iter(kept))}" if len(kept) == 1 else "")
        return f"{cell.method.label}, {said or budget.name}"
    units = {price.unit: budget.cost or 0.0} | budget.caps
    amounts = [replace(price, unit=cast(Unit, unit)).show(value) for unit, value in units.items()]
    return f"{cell.method.label}, {' and '.join(amounts)}"


def _identity(cell: Cell) -> str:
    """sha256 of what was computed: the tasks' names are hashes of all that went in."""
    return hashlib.sha256("\n".join((cell.result, *cell.asked)).encode()).hexdigest()


def _experiment(experiment: Experiment) -> dict[str, Any]:
    return {
        "name": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "shows": list(experiment.shows),
        "note": experiment.note,
        "methods": [_method(method) for method in experiment.methods],
        "asking": vars(experiment.asking).copy(),
        "prices": [vars(price).copy() for price in experiment.prices],
        **_setting(experiment.setting),
    }


def _method(method: Method) -> dict[str, Any]:
    changes = {"search": dict(method.search), "finetune": dict(method.finetune)}
    return {"name": method.name, "label": method.label, "about": method.about, "changes": changes}


def _setting(setting: Setting) -> dict[str, Any]:
    stages = setting.stages
    settings = {"teacher": stages.teacher, "search": stages.search, "finetune": stages.finetune}
    settings["matching"] = setting.matching
    return {
        "recipe": setting.recipe,
        "size": setting.size,
        "model": setting.model,
        "data": setting.data,
        "seeds": list(setting.seeds),
        "settings": {name: to_json(config) for name, config in settings.items()},
    }


def _shown(file: Path) -> str:
    """The file as seen from here, and never where this machine keeps it."""
    resolved, here = file.resolve(), Path.cwd().resolve()
    return resolved.relative_to(here).as_posix() if resolved.is_relative_to(here) else resolved.name
