"""What a plan costs at the least, before there is a model whose ranges are known."""

from __future__ import annotations

from functools import cache

from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.plan import Plan, uniform_plan
from privit.spec import KINDS, Granularity, Spec

NARROW = {"drop": 0.1, "peak": 0.1, "mean_exp": 1.0}


@cache
def least_cost(spec: Spec, price: Price, granularity: Granularity, *names: str) -> float:
    """What a plan of one operator for each kind costs in the best case; many ask for the same."""
    plan = uniform_plan(spec, granularity=granularity, **dict(zip(KINDS, names, strict=True)))
    return least_cost_of(plan, spec, price)


def least_cost_of(plan: Plan, spec: Spec, price: Price) -> float:
    """What a plan costs in the best case, whatever the ranges of the model's values turn out to be."""
    return min(Pricer(spec, price, ranges).cost(plan) for ranges in ({}, narrowest(spec)))


def narrowest(spec: Spec) -> dict[str, float]:
    """Ranges in which every function is as short as it gets."""
    layers = range(spec.depth)
    norms = [f"blocks.{layer}.norm{number}" for layer in layers for number in (1, 2)] + ["norm"]
    found = {f"{norm}.variance_{end}": 1.0 for norm in norms for end in ("low", "high")}
    return found | {f"blocks.{i}.softmax.{name}": value for i in layers for name, value in NARROW.items()}
