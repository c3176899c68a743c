"""Budgets in cost in a recipe: how a front states them, who can take them, which are possible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from privit.config import SearchConfig, free_choices
from privit.cost.budgets.budget import Budget, budgets_problems, cost_name
from privit.cost.budgets.floors import least_cost
from privit.cost.budgets.ladder import below_floor
from privit.cost.budgets.price import ENGINE_UNITS, Price, Unit
from privit.presets import Preset
from privit.spec import KINDS, Spec
from privit.sweep.methods import PLANNED, Method
from privit.sweep.recipe.keys import COST_BUDGETS, Table

TEACHERS = ("gelu", "relu", "softmax", "layer_norm")
"""Exact operators with which a teacher still predicts, so that what a site is worth can be measured in it."""


def read_price(table: Table, where: str, problems: list[str]) -> Price | None:
    """The price of a front's budgets in cost, or None if it has none."""
    given = [key for key in table if key in COST_BUDGETS]
    if not given:
        named = [key for key in ("protocol", "network", "names") if key in table]
        problems += [f"{where}: {key} is given, but no budget in cost such as max_seconds" for key in named]
        return None
    if several := [key for key in given[1:] if len(table[key]) != 1]:
        problems.append(
            f"{where}: {' and '.join(several)} beside {given[0]} should be one amount: the first of them is "
            "the budget, the others are caps on every plan"
        )
    unit = cast(Unit, given[0].removeprefix("max_"))
    return Price(unit, table.get("protocol", Price.protocol), table.get("network", Price.network))


def cost_budgets(
    table: Table, price: Price, in_sites: tuple[Budget, ...], where: str, problems: list[str]
) -> tuple[Budget, ...]:
    """The budgets of a front in cost, the largest first; each is called by its units and amounts.

    One amount in another unit, and one budget `in_sites`, are caps on every plan, as for `privit search`.
    """
    if len(in_sites) > 1:
        problems.append(f"{where}: beside a budget in cost, one in sites caps every plan; write two fronts")
    other = [key.removeprefix("max_") for key in table if key in COST_BUDGETS]
    caps = {unit: table[f"max_{unit}"][0] for unit in other if unit != price.unit and table[f"max_{unit}"]}
    capped = "".join(f"-{cost_name(unit, value)}" for unit, value in caps.items())
    capped += "".join(f"-{budget.name}" for budget in in_sites[:1])
    sites = dict(in_sites[0].sites) if in_sites else {}
    values, names = table[f"max_{price.unit}"], [str(name) for name in table.get("names", ())]
    if names and len(names) != len(values):
        problems.append(f"{where}: {len(names)} names for {len(values)} budgets")
    own = dict(zip(map(repr, values), names, strict=False))
    return tuple(
        Budget(sites, own.get(repr(value), cost_name(price.unit, value) + capped), value, caps)
        for value in sorted(dict.fromkeys(values), key=_falling)
    )


def priced_stages(stages: Preset, price: Price | None) -> Preset:
    """A method's settings for budgets in that price; as they are for budgets in sites.

    Each kind gets the free choice beside its stand-in. What fine-tuning would swap is swapped before the
    search, which otherwise would price operators that nobody runs.
    """
    if price is None:
        return stages
    search, swap = stages.search, stages.finetune.swap
    exact = {kind: swap.get(name, name) for kind, name in search.exact.items()}
    free = search.free or free_choices(search.stand_in)
    return replace(stages, search=replace(search, exact=exact, free=free, price=price))


def price_problems(
    price: Price, budgets: tuple[Budget, ...], protocols: tuple[str, ...], networks: tuple[str, ...]
) -> list[str]:
    """What is wrong with a front's price and budgets, whatever the method."""
    found = budgets_problems(budgets, price)
    units = {price.unit, *(unit for budget in budgets for unit in budget.caps)}
    if found or not units & set(ENGINE_UNITS):
        return found
    # Without these a report could not show any method's front in the budgets' unit.
    if price.protocol not in protocols:
        found.append(f"[cost] protocols lacks {price.protocol}, in which budgets are given")
    if "seconds" in units and price.network not in networks:
        found.append(f"[cost] networks lacks {price.network}, on which budgets are given")
    return found


def refusal(method: Method, search: SearchConfig, capped: bool = False) -> str | None:
    """Why a method cannot be given a budget in cost (`capped`: in several units at once), or None."""
    if method.route in PLANNED and capped:
        return "its plans have one measure alone, so that nothing beside the first budget can be kept to"
    strange = [search.exact[kind] for kind in method.kinds if search.exact[kind] not in TEACHERS]
    if method.route not in PLANNED and strange:
        return (
            f"its exact operator is {strange[0]}, with which the untrained teacher does not predict, "
            "so what a site is worth cannot be measured; give a budget in sites"
        )
    if method.route not in PLANNED and search.start != "teacher":
        return "it starts from random weights, in which no site is worth anything; give a budget in sites"
    return None


def floor_problems(
    method: Method, search: SearchConfig, price: Price, budgets: tuple[Budget, ...], spec: Spec | None
) -> list[str]:
    """Budgets that no plan of the method can meet, whatever the teacher's values turn out to be."""
    if spec is None:
        return []
    found = []
    for budget in budgets:
        for unit, most in {price.unit: float(budget.cost or 0), **budget.caps}.items():
            asked = replace(price, unit=cast(Unit, unit))
            lowest = floor(method, search, asked, spec)
            if most < lowest:
                found.append(below_floor(asked, most, lowest).message)
    return list(dict.fromkeys(found))


def floor(method: Method, search: SearchConfig, price: Price, spec: Spec) -> float:
    """What a method's cheapest plan costs at least: ranges, which shorten functions, are not known yet."""
    cheap = search.stand_in if method.route in PLANNED else search.stand_in | search.free
    names = (cheap[kind] if kind in method.kinds else search.exact[kind] for kind in KINDS)
    return least_cost(spec, price, search.granularity, *names)


def _falling(value: Any) -> float:
    return -value if isinstance(value, (int, float)) else 0.0
