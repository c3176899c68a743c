"""Budgets in cost in a recipe: how a front states them, who can take them, which are possible."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, cast

from privit.config import Budget, SearchConfig, budgets_problems, cost_name, free_choices, spend
from privit.cost.budgets.ladder import below_floor
from privit.cost.budgets.pricing import Price, Pricer, Unit
from privit.plan import uniform_plan
from privit.presets import Preset
from privit.spec import KINDS, Granularity, Spec
from privit.sweep.methods import PLANNED, Method
from privit.sweep.tables import COST_BUDGETS, SITE_BUDGETS, Table

TEACHERS = ("gelu", "relu", "softmax")
"""Exact operators with which a teacher still predicts, so that what a site is worth can be measured in it."""
NARROW = {"drop": 0.1, "peak": 0.1, "mean_exp": 1.0}


def read_price(table: Table, where: str, problems: list[str]) -> Price | None:
    """The price of a front's budgets in cost, or None if it has none."""
    given = [key for key in COST_BUDGETS if key in table]
    if not given:
        named = [key for key in ("protocol", "network") if key in table]
        problems += [f"{where}: {key} is given, but no budget in cost such as max_seconds" for key in named]
        return None
    if len(given) > 1:
        problems.append(f"{where}: {' and '.join(given)} stand together; a front has one unit")
    if beside := [key for key in SITE_BUDGETS if key in table]:
        problems.append(f"{where}: {', '.join(beside)} in sites beside {given[0]}; write two fronts")
    unit = cast(Unit, given[0].removeprefix("max_"))
    return Price(unit, table.get("protocol", Price.protocol), table.get("network", Price.network))


def cost_budgets(table: Table, price: Price) -> tuple[Budget, ...]:
    """The budgets of a front in cost, the largest first; each is called by its unit and amount."""
    values = list(dict.fromkeys(table[f"max_{price.unit}"]))
    return tuple(spend(value, cost_name(price.unit, value)) for value in sorted(values, key=_falling))


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
    if found or price.unit in ("relu_ops", "and_gates"):
        return found
    # Without these a report could not show any method's front in the budgets' unit.
    if price.protocol not in protocols:
        found.append(f"[cost] protocols lacks {price.protocol}, in which budgets are given")
    if price.unit == "seconds" and price.network not in networks:
        found.append(f"[cost] networks lacks {price.network}, on which budgets are given")
    return found


def refusal(method: Method, search: SearchConfig) -> str | None:
    """Why a method cannot be given a budget in cost, or None."""
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
    lowest = floor(method, search, price, spec)
    return [
        below_floor(price, float(budget.cost or 0), lowest).message
        for budget in budgets
        if budget.cost is not None and budget.cost < lowest
    ]


def floor(method: Method, search: SearchConfig, price: Price, spec: Spec) -> float:
    """What a method's cheapest plan costs at least: ranges, which shorten functions, are not known yet."""
    cheap = search.stand_in if method.route in PLANNED else search.stand_in | search.free
    names = (cheap[kind] if kind in method.kinds else search.exact[kind] for kind in KINDS)
    return _least_cost(spec, price, search.granularity, *names)


@cache
def _least_cost(spec: Spec, price: Price, granularity: Granularity, *names: str) -> float:
    """What a plan of one operator for each kind costs in the best case; most methods ask for the same."""
    plan = uniform_plan(spec, granularity=granularity, **dict(zip(KINDS, names, strict=True)))
    return min(Pricer(spec, price, ranges).cost(plan) for ranges in ({}, _narrowest(spec)))


def _narrowest(spec: Spec) -> dict[str, float]:
    """Ranges in which every function is as short as it gets."""
    layers = range(spec.depth)
    norms = [f"blocks.{layer}.norm{number}" for layer in layers for number in (1, 2)] + ["norm"]
    found = {f"{norm}.variance_{end}": 1.0 for norm in norms for end in ("low", "high")}
    return found | {f"blocks.{i}.softmax.{name}": value for i in layers for name, value in NARROW.items()}


def _falling(value: Any) -> float:
    return -value if isinstance(value, (int, float)) else 0.0
