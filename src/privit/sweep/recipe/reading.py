"""From a recipe's tables to a recipe, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from privit.config import (
    FinetuneConfig,
    SearchConfig,
    TeacherConfig,
    TrainConfig,
    from_json,
    to_json,
    type_problems,
)
from privit.cost.network import network
from privit.cost.spu.table import PROTOCOLS
from privit.errors import PrivitError
from privit.presets import PRESETS, Preset
from privit.sections import SECTIONS
from privit.sweep.methods import METHODS, Method, merged
from privit.sweep.recipe.asking import check_protocols, read_asking
from privit.sweep.recipe.budgets import check_lines, own_methods, read_front
from privit.sweep.recipe.keys import COST, EXPERIMENT, FRONT, RECIPE, Table, check_folder_name, known_entries
from privit.sweep.recipe.model_and_data import check_data, known_spec
from privit.sweep.recipe.recipe import (
    Experiment,
    Recipe,
    Setting,
    opening_comment,
    read_toml,
    recipe_name,
)

_STAGES: Mapping[str, type[TrainConfig]] = {
    "teacher": TeacherConfig,
    "search": SearchConfig,
    "finetune": FinetuneConfig,
    "matching": FinetuneConfig,
}


def parse_recipe(
    file: Path, tables: Table, including: tuple[Path, ...] = ()
) -> tuple[Recipe | None, list[str]]:
    """The recipe and its problems; None where there are any. `including` are the files that led here."""
    problems: list[str] = []
    tables = known_entries(tables, RECIPE, "the recipe", problems)
    experiments: list[Experiment] = []
    for name in tables.get("include", []):
        other = Path(file).parent / str(name)
        if other.resolve() in (*including, Path(file).resolve()):
            problems.append(f"{name} includes itself")
            continue
        try:
            included, found = parse_recipe(other, read_toml(other), (*including, Path(file).resolve()))
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
    known = METHODS | own_methods(tables.get("methods", {}), problems)
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
    cost = known_entries(tables.get("cost", {}), COST, "[cost]", problems)
    protocols, networks = tuple(cost.get("protocols", PROTOCOLS)), tuple(cost.get("networks", ["lan", "wan"]))
    check_protocols(protocols, "[cost] protocols", problems)
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


def _experiment(
    given: Any, where: str, setting: Setting, known: Mapping[str, Method], problems: list[str]
) -> Experiment | None:
    before = len(problems)
    table = known_entries(given, EXPERIMENT, where, problems)
    if "name" not in table:
        problems.append(f"{where}: name is missing")
    else:
        check_folder_name(table["name"], where, problems)
    setting = _with_subject(setting, table, f"{where}: ", problems)
    shows = tuple(table.get("shows", ["front"]))
    problems += [
        f"{where}: shows has {show!r}; known: {', '.join(SECTIONS)}" for show in shows if show not in SECTIONS
    ]
    asking = read_asking(table, where, setting.export, problems)
    inner = table.get("fronts")
    if inner is not None and table.keys() & FRONT.keys():
        problems.append(f"{where}: methods and budgets stand beside fronts; put them into one of the fronts")
    given_fronts = inner if inner is not None else [{k: v for k, v in table.items() if k in FRONT}]
    fronts = [
        read_front(front, f"{where}, front {i + 1}" if inner is not None else where, setting, known, problems)
        for i, front in enumerate(given_fronts)
    ]
    check_lines(fronts, where, problems)
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
        asking,
        setting,
    )


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refusal(check: Any, prefix: str) -> list[str]:
    try:
        check()
    except PrivitError as error:
        return [prefix + error.message]
    return []
