"""The methods and budgets of a recipe, each checked against the other and against the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from privit.config import type_problems
from privit.cost.budgets.budget import Budget
from privit.cost.budgets.price import Price
from privit.errors import PrivitError
from privit.presets import Preset
from privit.spec import KINDS, PAPER_KINDS, switched_kinds, with_tokens
from privit.sweep.methods import METHODS, Method, merged
from privit.sweep.recipe.cost_budgets import (
    cost_budgets,
    floor_problems,
    price_problems,
    priced_stages,
    read_price,
    refusal,
)
from privit.sweep.recipe.keys import FRONT, METHOD, Table, check_folder_name, known_entries
from privit.sweep.recipe.model_and_data import site_counts
from privit.sweep.recipe.recipe import Front, Setting, budget_from


def own_methods(tables: Table, problems: list[str]) -> dict[str, Method]:
    """The methods that a recipe defines itself, by name."""
    methods: dict[str, Method] = {}
    for name, given in tables.items():
        where = f"method {name}"
        check_folder_name(name, where, problems)
        table = dict(known_entries(given, METHOD, where, problems))
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


def read_front(
    given: Any, where: str, setting: Setting, known: Mapping[str, Method], problems: list[str]
) -> Front:
    """A front from its table; what is wrong with it goes to `problems`."""
    table = known_entries(given, FRONT, where, problems)
    names = table.get("methods", [])
    if not names:
        problems.append(f"{where}: no methods are given")
    for name in names:
        if name not in known:
            problems.append(f"{where}: no method is called {name!r}; known: {', '.join(known)}")
    methods = tuple(known[name] for name in names if name in known)
    price = read_price(table, where, problems)
    budgets = _budgets(table, where, problems)
    budgets = cost_budgets(table, price, budgets, where, problems) if price else budgets
    if not budgets and any(method.budgeted for method in methods):
        problems.append(f"{where}: no budget is given; write keep, budgets, grid or max_seconds")
    found = price_problems(price, budgets, setting.protocols, setting.networks) if price and budgets else []
    problems += [f"{where}: {problem}" for problem in found]
    only = tuple(map(str, table.get("only", ())))
    unknown = [name for name in only if name not in {budget.name for budget in budgets}]
    named = ", ".join(budget.name for budget in budgets)
    problems += [f"{where}: only has {name!r}, but the budgets are {named}" for name in unknown]
    front = Front(methods, budgets, table.get("one_descent", True), price, only)
    if any("norm" in budget.sites for budget in budgets) and not any("norm" in m.kinds for m in methods):
        problems.append(
            f"{where}: a budget has norm, but no method here replaces LayerNorms; give one "
            'search = { kinds = ["gelu", "softmax", "norm"] }'
        )
    for method in methods:
        _check_method(method, front if not found else replace(front, budgets=()), where, setting, problems)
    return front


def check_lines(fronts: Sequence[Front], where: str, problems: list[str]) -> None:
    """Adds a problem for each method whose budgets are of two kinds: a report draws one line through them."""
    prices: dict[str, set[Price | None]] = {}
    for front in fronts:
        for method in front.methods:
            if method.budgeted:
                prices.setdefault(method.name, set()).add(front.price)
    problems += [
        f"{where}: {name} has budgets in different units, which would be one line in a report; give one of "
        f'them a name of its own: [methods.{name}-cost] with base = "{name}" and a label'
        for name, found in prices.items()
        if len(found) > 1
    ]


def _budgets(table: Table, where: str, problems: list[str]) -> tuple[Budget, ...]:
    shares = table.get("keep", [])
    problems += [
        f"{where}: keep has {share!r}, but shares of the sites from 0 to 1 were expected; "
        "budgets take numbers of sites"
        for share in shares
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1
    ]
    given: list[Any] = [dict.fromkeys(PAPER_KINDS, share) for share in shares]
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
    for name in names:
        check_folder_name(name, where, problems)
    problems += [f"{where}: two budgets are called {n!r}" for n in sorted(set(names)) if names.count(n) > 1]
    return tuple(budgets)


def _check_method(method: Method, front: Front, where: str, setting: Setting, problems: list[str]) -> None:
    where = f"{where}, {method.name}"
    try:
        stages = method.settings(setting.stages)
    except PrivitError as error:
        problems.append(f"{where}: {error.message}")
        return
    found = type_problems(stages.search) or stages.search.problems()
    found += type_problems(stages.finetune) or stages.finetune.problems()
    found += _norm_and_token_problems(method, stages)
    setting, refused = _with_pools(setting, stages)
    found += refused
    if front.price is not None and method.budgeted and not found:
        found += _cost_problems(method, front, stages, setting)
    in_sites = front.price is None and method.budgeted and not found
    for budget in front.budgets if in_sites else ():
        lacking = [kind for kind in method.kinds if kind not in budget.sites]
        found += [f"budget {budget.name!r} says nothing about {kind}" for kind in lacking]
        wanted = {kind: value for kind, value in budget.sites.items() if kind in method.kinds}
        found += [
            f"budget {budget.name!r}: {text}"
            for text in site_counts(wanted, setting.spec, stages.search.granularity)[1]
        ]
    if front.price is None:
        found += _layer_problems(method, setting)
    found += _student_problems(method, front)
    problems += [f"{where}: {problem}" for problem in found]


def _with_pools(setting: Setting, stages: Preset) -> tuple[Setting, list[str]]:
    """The setting with the method's students for a model, and why there are none."""
    if setting.spec is None or not stages.search.tokens:
        return setting, []
    try:
        return replace(setting, spec=with_tokens(setting.spec, stages.search.tokens)), []
    except PrivitError as error:
        return setting, [f"tokens: {error.message}"]


def _norm_and_token_problems(method: Method, stages: Preset) -> list[str]:
    """Who can replace LayerNorms and pool tokens: searches, from whose weights it then goes on."""
    found = []
    if method.route not in ("search", "untrained") and "norm" in method.kinds:
        found.append("only searches replace LayerNorms; leave norm out of its kinds")
    searched = method.route in ("search", "untrained") and not method.retrain
    if stages.search.tokens and not searched and method.route != "dense":
        found.append("its models have the teacher's tokens; give tokens to a method that searches")
    if set(switched_kinds(method.kinds)) != set(switched_kinds(stages.search.kinds)):
        found.append('give norm to the method itself: search = { kinds = ["gelu", "softmax", "norm"] }')
    return found


def _cost_problems(method: Method, front: Front, stages: Preset, setting: Setting) -> list[str]:
    assert front.price is not None
    capped = any(budget.caps or budget.sites for budget in front.budgets)
    if reason := refusal(method, stages.search, capped):
        return [f"cannot be given a budget in cost: {reason}"]
    search = priced_stages(stages, front.price).search
    capped_sites = front.budgets[0].sites if front.budgets else {}
    found = site_counts(capped_sites, setting.spec, search.granularity)[1]
    return found + floor_problems(method, search, front.price, front.budgets, setting.spec)


def _student_problems(method: Method, front: Front) -> list[str]:
    found: list[str] = []
    if method.student:
        check_folder_name(method.student.replace("{budget}", "x"), "student", found)
        if not method.many and len(front.finished(front.budgets)) > 1:
            found.append(f"several budgets give students called {method.student!r}; put {{budget}} into it")
    if method.fill and (front.price is None or method.route not in ("search", "untrained")):
        found.append("fill adds sites to a plan found under a cost; give such a budget: max_seconds, ...")
    if method.fill and not method.tuned:
        found.append("a filled plan has to be fine-tuned, which this method is not")
    return found + [
        f"fill has {kind} = {value!r}; write fill = {{ gelu = 0.1, softmax = 0.1 }}"
        for kind, value in method.fill.items()
        if kind not in KINDS or isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0
    ]


def _layer_problems(method: Method, setting: Setting) -> list[str]:
    if method.route != "layers":
        return []
    if setting.spec is None:
        return (
            [] if method.layers else [f"give layers: how many {setting.model} has is known only once loaded"]
        )
    depth = setting.spec.depth
    return [
        f"layers has {layers!r}, but a number from 0 to {depth} was expected"
        for layers in method.layers or ()
        if isinstance(layers, bool) or not isinstance(layers, int) or not 0 <= layers <= depth
    ]
