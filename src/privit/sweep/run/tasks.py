"""From a recipe to its cells, and to the stages that they need and share.

A task is named by a hash of everything that decides its result, so two cells, two experiments or two recipes
that need the same teacher, search or fine-tuning find the same folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from privit.config import to_json
from privit.cost.budgets.budget import Budget
from privit.cost.budgets.price import Price
from privit.presets import Preset
from privit.spec import switched_kinds
from privit.sweep.methods import Method
from privit.sweep.recipe.cost_budgets import priced_stages
from privit.sweep.recipe.model_and_data import site_counts
from privit.sweep.recipe.recipe import Experiment, Front, Recipe, Setting


@dataclass(frozen=True)
class Task:
    """One stage of work; its folder is OUT/stages/NAME.

    `settings` are plain data and name the tasks that come before it; `after` lists those. `title` is
    for people.
    """

    stage: str
    name: str
    settings: dict[str, Any] = field(repr=False)
    after: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Cell:
    """One method under one budget with one seed; `result` names the task that tells what it is worth.

    `asked` are the tasks that ask the finished model; `price` is the unit of a budget in cost.
    """

    experiment: Experiment
    method: Method
    budget: Budget
    seed: int
    result: str
    asked: tuple[str, ...]
    price: Price | None = None

    @property
    def folder(self) -> str:
        """Where cell.json lies, below OUT."""
        return f"cells/{self.experiment.name}/{self.method.name}/{self.budget.name}/seed-{self.seed}"


UNTRAINED_SETTINGS = (
    *("budgets", "granularity", "kinds", "tokens", "exact", "stand_in", "free", "weigh", "price", "seed"),
)
"""What of a search's settings matters without training."""
NO_BUDGET = Budget({}, "all")
"""Of a method that is one point."""


class Grid:
    """The cells of a recipe and their tasks, each once, in an order in which they can be done."""

    def __init__(self, recipe: Recipe):
        self.tasks: dict[str, Task] = {}
        self.cells: list[Cell] = []
        seeds = {seed for experiment in recipe.experiments for seed in experiment.setting.seeds}
        # Seed by seed: a sweep that is stopped early has whole comparisons of the first seeds.
        for seed in sorted(seeds):
            for experiment in recipe.experiments:
                if seed in experiment.setting.seeds:
                    for front in experiment.fronts:
                        for method in front.methods:
                            self._add_cells(experiment, front, method, seed)

    def _add_cells(self, experiment: Experiment, front: Front, method: Method, seed: int) -> None:
        setting = experiment.setting
        teacher = self._teacher(setting, seed)
        for budget, run in self._runs(setting, front, method, seed, teacher):
            title = f"{experiment.name} {method.name} {budget.name}"
            cost = {"protocols": list(setting.protocols), "networks": list(setting.networks)}
            wanted = {"run": run, "teacher": teacher, "graph": method.graph, "export": setting.export} | cost
            wanted |= {} if method.tuned else {"budget": budget.name}
            result = self._add("result", seed, wanted, (run,), title)
            asked = [
                self._add(stage, seed, {"result": result} | wanted, (result,), title)
                for stage, wanted in experiment.asking.stages(served=method.graph == "all")
            ]
            price = front.price if method.budgeted else None
            self.cells.append(Cell(experiment, method, budget, seed, result, tuple(asked), price))

    def _teacher(self, setting: Setting, seed: int) -> str:
        chosen = seed if setting.teacher_seed is None else setting.teacher_seed
        config = replace(setting.stages.teacher, seed=chosen, data_seed=chosen)
        settings = {"model": setting.model, "data": setting.data, "config": to_json(config)}
        return self._add("teacher", chosen, settings, (), setting.data)

    def _runs(
        self, setting: Setting, front: Front, method: Method, seed: int, teacher: str
    ) -> Iterator[tuple[Budget, str]]:
        """Each budget of a method with the run that ends it."""
        stages = priced_stages(method.settings(setting.stages), front.price)
        plan: dict[str, Any]
        if method.route == "dense":
            yield NO_BUDGET, teacher
        elif method.route == "matching":
            config = to_json(replace(setting.matching, seed=seed))
            wanted = {"teacher": teacher, "config": config, "operators": dict(method.operators)}
            matched = self._add("matching", seed, wanted, (teacher,), method.name)
            yield NO_BUDGET, self._finetune(stages, method, seed, NO_BUDGET, matched)
        elif method.route == "layers" and front.price is None:
            yield from self._layers(setting, front, method, seed, teacher)
        elif method.route in ("search", "untrained"):
            for chain in _descents(front, method, stages, setting):
                search = self._search if method.route == "search" else self._untrained
                searched = search(stages, method, chain, seed, teacher)
                for budget in front.finished(chain):
                    if not method.tuned:
                        run = searched
                    elif method.fill:
                        plan = {"how": "filled", "sites": dict(method.fill)}
                        run = self._finetune(stages, method, seed, budget, searched, plan)
                    elif method.retrain:
                        plan = {"how": "cut", "search": searched, "budget": budget.name}
                        run = self._finetune(stages, method, seed, budget, teacher, plan, (searched,))
                    else:
                        run = self._finetune(stages, method, seed, budget, searched)
                    yield budget, run
        else:
            for budget in front.finished(front.budgets):
                plan = {"how": method.route, "sites": budget.sites, "search": to_json(stages.search)}
                plan |= {"seed": seed} if method.route == "random" else {}
                plan |= {"cost": budget.cost} if front.price else {}
                yield budget, self._finetune(stages, method, seed, budget, teacher, plan)

    def _layers(
        self, setting: Setting, front: Front, method: Method, seed: int, teacher: str
    ) -> Iterator[tuple[Budget, str]]:
        stages = method.settings(setting.stages)
        chain = _descents(front, method, stages, setting)[0]
        searched = self._search(stages, method, chain, seed, teacher)
        depth = setting.spec.depth if setting.spec else 0
        for layers in method.layers or range(1, depth + 1):
            plan: dict[str, Any] = {"how": "layers", "layers": layers, "kinds": list(method.kinds)}
            plan |= {"stand_in": stages.search.stand_in}
            run = self._finetune(stages, method, seed, chain[0], searched, plan)
            yield Budget({}, f"layers-{layers}"), run

    def _search(self, stages: Preset, method: Method, chain: list[Budget], seed: int, teacher: str) -> str:
        config = replace(stages.search, budgets=tuple(chain), seed=seed)
        wanted = {"teacher": teacher, "config": to_json(config), "fitted": method.fitted}
        return self._add("search", seed, wanted, (teacher,), method.name)

    def _untrained(self, stages: Preset, method: Method, chain: list[Budget], seed: int, teacher: str) -> str:
        """A search that trains nothing; only what it reads of the settings decides its name."""
        search = to_json(replace(stages.search, budgets=tuple(chain), seed=seed))
        config = {name: search[name] for name in UNTRAINED_SETTINGS if name in search}
        wanted = {"teacher": teacher, "config": config, "training": False}
        return self._add("search", seed, wanted, (teacher,), method.name)

    def _finetune(
        self,
        stages: Preset,
        method: Method,
        seed: int,
        budget: Budget,
        source: str,
        plan: dict[str, Any] | None = None,
        also: tuple[str, ...] = (),
    ) -> str:
        cut = budget.name if source.startswith("search-") else None
        config = to_json(replace(stages.finetune, seed=seed))
        wanted = {"source": source, "budget": cut, "plan": plan, "config": config}
        return self._add("finetune", seed, wanted, (source, *also), f"{method.name} {budget.name}")

    def _add(
        self, stage: str, seed: int, settings: dict[str, Any], after: tuple[str, ...], title: str
    ) -> str:
        text = json.dumps({"stage": stage, "settings": settings}, sort_keys=True)
        name = f"{stage}-seed-{seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        # Plain data, as a worker process or a reader of config.json would see them.
        plain = json.loads(json.dumps(settings))
        self.tasks.setdefault(name, Task(stage, name, plain, after, title))
        return name


def _descents(front: Front, method: Method, stages: Preset, setting: Setting) -> list[list[Budget]]:
    """The budgets in as few chains as one descent each can meet: every budget below the one before it."""
    if front.price is not None:
        # Their order is that of their costs.
        return [list(front.budgets)] if front.one_descent else [[budget] for budget in front.budgets]
    granularity, kinds = stages.search.granularity, switched_kinds(method.kinds)
    counted = []
    for budget in front.budgets:
        sites = {kind: budget.sites.get(kind, 1.0) if kind in method.kinds else 1.0 for kind in kinds}
        counts, _ = site_counts(sites, setting.spec, granularity)
        counted.append((Budget(sites, budget.name), counts))
    counted.sort(key=lambda pair: [-pair[1][kind] for kind in kinds])
    if not front.one_descent:
        return [[budget] for budget, _ in counted]
    chains: list[list[tuple[Budget, dict[str, int]]]] = []
    for budget, counts in counted:
        above = [c for c in chains if all(c[-1][1][kind] >= counts[kind] for kind in kinds)]
        if above:
            nearest = min(above, key=lambda c: sum(c[-1][1][kind] - counts[kind] for kind in kinds))
            nearest.append((budget, counts))
        else:
            chains.append([(budget, counts)])
    return [[budget for budget, _ in chain] for chain in chains]
