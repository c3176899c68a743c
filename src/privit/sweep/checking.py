"""From a recipe's tables to a recipe, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from privit.config import (
    Budget,
    FinetuneConfig,
    SearchConfig,
    TeacherConfig,
    TrainConfig,
    from_json,
    to_json,
    type_problems,
)
from privit.cost.network import network
from privit.cost.table import PROTOCOLS
from privit.errors import PrivitError
from privit.presets import PRESETS, Preset
from privit.spec import KINDS
from privit.sweep.methods import METHODS, Method, merged
from privit.sweep.recipe import (
    SHOWS,
    Experiment,
    Front,
    Recipe,
    Setting,
    budget_from,
    opening_comment,
    read_toml,
    recipe_name,
)
from privit.sweep.subject import check_data, known_spec, site_counts

Table = Mapping[str, Any]
Keys = dict[str, type]

_FRONT: Keys = {"methods": list, "keep": list, "budgets": list, "grid": dict, "one_descent": bool}
_EXPERIMENT: Keys = _FRONT | {
    "name": str,
    "title": str,
    "paper": str,
    "shows": list,
    "note": str,
    "bench": list,
    "fronts": list,
    "model": str,
    "data": str,
    "seeds": list,
}
_METHOD: Keys = {
    "base": str,
    "label": str,
    "about": str,
    "search": dict,
    "finetune": dict,
    "strategy": int,
    "retrain": bool,
    "fitted": bool,
    "layers": list,
}
_COST: Keys = {"protocols": list, "networks": list, "export": bool}
_RECIPE: Keys = {
    "title": str,
    "include": list,
    "model": str,
    "data": str,
    "preset": str,
    "seeds": list,
    "teacher_seed": int,
    "teacher": dict,
    "search": dict,
    "finetune": dict,
    "matching": dict,
    "cost": dict,
    "methods": dict,
    "experiments": list,
}
_STAGES: Mapping[str, type[TrainConfig]] = {
    "teacher": TeacherConfig,
    "search": SearchConfig,
    "finetune": FinetuneConfig,
    "matching": FinetuneConfig,
}


def parse_recipe(file: Path, tables: Table) -> tuple[Recipe | None, list[str]]:
    """The recipe and its problems; None where there are any."""
    problems: list[str] = []
    tables = _known(tables, _RECIPE, "the recipe", problems)
    experiments: list[Experiment] = []
    for name in tables.get("include", []):
        other = Path(file).parent / str(name)
        try:
            included, found = parse_recipe(other, read_toml(other))
            problems += [f"{name}: {problem}" for problem in found]
            experiments += included.experiments if included else ()
        except PrivitError as error:
            problems.append(error.message)
    if "experiments" in tables or "include" not in tables:
        experiments += _own_experiments(file, tables, problems)
    names = [experiment.name for experiment in experiments]
    problems += [f"two experiments are called {n!r}" for n in sorted(set(names)) if names.count(n) > 1]
    if problems:
        return None, problems
    title = tables.get("title", recipe_name(file))
    return Recipe(recipe_name(file), Path(file), title, opening_comment(file), tuple(experiments)), []


def _own_experiments(file: Path, tables: Table, problems: list[str]) -> list[Experiment]:
    setting = _setting(file, tables, problems)
    known = METHODS | _own_methods(tables.get("methods", {}), problems)
    if not tables.get("experiments"):
        problems.append("there is no experiment; write [[experiments]]")
    found = []
    for i, table in enumerate(tables.get("experiments", [])):
        where = f"experiment {table.get('name', i + 1)}" if isinstance(table, dict) else f"experiment {i + 1}"
        found.append(_experiment(table, where, setting, known, problems))
    return [experiment for experiment in found if experiment is not None]


def _setting(file: Path, tables: Table, problems: list[str]) -> Setting:
    for key in ("model", "data", "preset", "seeds"):
        if key not in tables:
            problems.append(f"{key} is missing")
    preset_name = tables.get("preset", "paper")
    if preset_name not in PRESETS:
        problems.append(f"no preset is called {preset_name!r}; known: {', '.join(PRESETS)}")
    base = PRESETS.get(preset_name, PRESETS["paper"])
    configs: dict[str, Any] = {}
    for stage, kind in _STAGES.items():
        start = configs["finetune"] if stage == "matching" else getattr(base, stage)
        configs[stage] = _config(kind, start, tables.get(stage, {}), f"[{stage}]", problems)
    cost = _known(tables.get("cost", {}), _COST, "[cost]", problems)
    protocols, networks = tuple(cost.get("protocols", PROTOCOLS)), tuple(cost.get("networks", ["lan", "wan"]))
    _check_protocols(protocols, "[cost] protocols", problems)
    for name in networks:
        problems += _refusal(lambda name=name: network(str(name)), "[cost] networks: ")
    setting = Setting(
        recipe_name(file),
        recipe_name(file).partition("/")[0],
        "",
        "digits",
        (0,),
        Preset(configs["teacher"], configs["search"], configs["finetune"]),
        configs["matching"],
        tables.get("teacher_seed"),
        protocols,
        networks,
        cost.get("export", True),
    )
    return _with_subject(setting, tables, "", problems)


def _with_subject(setting: Setting, table: Table, where: str, problems: list[str]) -> Setting:
    """The setting with the model, the data and the seeds that a table names, if it does."""
    found: list[str] = []
    if "model" in table:
        spec = known_spec(table["model"], setting.stages.teacher.image_size, found)
        setting = replace(setting, model=table["model"], spec=spec)
    if "data" in table:
        check_data(table["data"], found)
        setting = replace(setting, data=table["data"])
    if "seeds" in table:
        seeds = table["seeds"]
        if not seeds or not all(_is_seed(seed) for seed in seeds) or len(set(map(repr, seeds))) < len(seeds):
            found.append(f"seeds is {seeds!r}; give different whole numbers, none below zero")
        setting = replace(setting, seeds=tuple(seeds))
    problems += [where + problem for problem in found]
    return setting


def _config(kind: type[Any], base: Any, changes: Table, where: str, problems: list[str]) -> Any:
    for name, instead in (("seed", "seeds"), ("data_seed", "seeds"), ("budgets", "an experiment's budgets")):
        if name in changes:
            problems.append(f"{where} {name}: write {instead}")
    changes = {n: v for n, v in changes.items() if n not in ("seed", "data_seed", "budgets")}
    unknown = sorted(changes.keys() - {f.name for f in fields(kind)})
    problems += [f"{where} has no setting {name!r}" for name in unknown]
    changes = {n: v for n, v in changes.items() if n not in unknown}
    try:
        config = from_json(kind, merged(to_json(base), changes))
    except PrivitError as error:
        problems.append(f"{where}: {error.message}")
        return base
    found = type_problems(config) or config.problems()
    problems += [f"{where}: {problem}" for problem in found]
    return base if found else config


def _own_methods(tables: Table, problems: list[str]) -> dict[str, Method]:
    methods: dict[str, Method] = {}
    for name, given in tables.items():
        where = f"method {name}"
        table = dict(_known(given, _METHOD, where, problems))
        base = table.pop("base", name)
        if base not in METHODS:
            problems.append(f"{where}: no method is called {base!r}; known: {', '.join(METHODS)}")
            continue
        if "layers" in table:
            table["layers"] = tuple(table["layers"])
        for part in ("search", "finetune"):
            table[part] = merged(getattr(METHODS[base], part), table.get(part, {}))
        methods[name] = replace(METHODS[base], name=name, **table)
    return methods


def _experiment(
    given: Any, where: str, setting: Setting, known: Mapping[str, Method], problems: list[str]
) -> Experiment | None:
    before = len(problems)
    table = _known(given, _EXPERIMENT, where, problems)
    if "name" not in table:
        problems.append(f"{where}: name is missing")
    setting = _with_subject(setting, table, f"{where}: ", problems)
    shows = tuple(table.get("shows", ["front"]))
    problems += [
        f"{where}: shows has {show!r}; known: {', '.join(SHOWS)}" for show in shows if show not in SHOWS
    ]
    bench = tuple(table.get("bench", []))
    _check_protocols(bench, f"{where}: bench", problems)
    if bench and not setting.export:
        problems.append(f"{where}: bench measures artifacts, but [cost] export is false")
    inner = table.get("fronts")
    if inner is not None and table.keys() & _FRONT.keys():
        problems.append(f"{where}: methods and budgets stand beside fronts; put them into one of the fronts")
    given_fronts = inner if inner is not None else [{k: v for k, v in table.items() if k in _FRONT}]
    fronts = [
        _front(front, f"{where}, front {i + 1}" if inner is not None else where, setting, known, problems)
        for i, front in enumerate(given_fronts)
    ]
    if len(problems) > before:
        return None
    name = table["name"]
    return Experiment(
        name,
        table.get("title", name),
        table.get("paper", ""),
        shows,
        table.get("note", ""),
        tuple(fronts),
        bench,
        setting,
    )


def _front(
    given: Any, where: str, setting: Setting, known: Mapping[str, Method], problems: list[str]
) -> Front:
    table = _known(given, _FRONT, where, problems)
    names = table.get("methods", [])
    if not names:
        problems.append(f"{where}: no methods are given")
    for name in names:
        if name not in known:
            problems.append(f"{where}: no method is called {name!r}; known: {', '.join(known)}")
    methods = tuple(known[name] for name in names if name in known)
    budgets = _budgets(table, where, problems)
    if not budgets and any(method.budgeted for method in methods):
        problems.append(f"{where}: no budget is given; write keep, budgets or grid")
    for method in methods:
        _check_method(method, budgets, where, setting, problems)
    return Front(methods, budgets, table.get("one_descent", True))


def _budgets(table: Table, where: str, problems: list[str]) -> tuple[Budget, ...]:
    given: list[Any] = [dict.fromkeys(KINDS, share) for share in table.get("keep", [])]
    given += table.get("budgets", [])
    if grid := table.get("grid"):
        given += [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    budgets = []
    for entry in given:
        if not isinstance(entry, dict) or entry.keys() - {*KINDS, "name"} or not entry.keys() & set(KINDS):
            problems.append(f"{where}: {entry!r} is not a budget; write {{gelu = 0.1, softmax = 0.1}}")
            continue
        budgets.append(budget_from(entry))
    names = [budget.name for budget in budgets]
    problems += [f"{where}: two budgets are called {n!r}" for n in sorted(set(names)) if names.count(n) > 1]
    return tuple(budgets)


def _check_method(
    method: Method, budgets: tuple[Budget, ...], where: str, setting: Setting, problems: list[str]
) -> None:
    where = f"{where}, {method.name}"
    try:
        stages = method.settings(setting.stages)
    except PrivitError as error:
        problems.append(f"{where}: {error.message}")
        return
    found = type_problems(stages.search) or stages.search.problems()
    found += type_problems(stages.finetune) or stages.finetune.problems()
    for budget in budgets if method.budgeted and not found else ():
        lacking = [kind for kind in method.kinds if kind not in budget.sites]
        found += [f"budget {budget.name!r} says nothing about {kind}" for kind in lacking]
        wanted = {kind: value for kind, value in budget.sites.items() if kind in method.kinds}
        found += [
            f"budget {budget.name!r}: {text}"
            for text in site_counts(wanted, setting.spec, stages.search.granularity)[1]
        ]
    depth = setting.spec.depth if setting.spec else None
    for layers in method.layers or ():
        if isinstance(layers, bool) or not isinstance(layers, int) or not 0 <= layers <= (depth or layers):
            found.append(f"layers has {layers!r}, but the model has {depth or 'a few'} layers")
    problems += [f"{where}: {problem}" for problem in found]


def _known(table: Any, keys: Keys, where: str, problems: list[str]) -> dict[str, Any]:
    """The entries of a table that are known and of the right type; the others become problems."""
    if not isinstance(table, dict):
        problems.append(f"{where} is {table!r}, not a table")
        return {}
    good = {}
    for name, value in table.items():
        if name not in keys:
            problems.append(f"{where} has an unknown key {name!r}; known: {', '.join(keys)}")
        elif not isinstance(value, keys[name]) or (keys[name] is int and isinstance(value, bool)):
            problems.append(f"{where}: {name} is {value!r}, but a {keys[name].__name__} was expected")
        else:
            good[name] = value
    return good


def _check_protocols(names: tuple[Any, ...], where: str, problems: list[str]) -> None:
    problems += [
        f"{where} has {name!r}; known: {', '.join(PROTOCOLS)}" for name in names if name not in PROTOCOLS
    ]


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refusal(check: Any, prefix: str) -> list[str]:
    try:
        check()
    except PrivitError as error:
        return [prefix + error.message]
    return []
