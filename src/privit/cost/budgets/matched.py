"""Plans of any method at a given cost, so that methods are compared in one unit."""

from __future__ import annotations

from collections.abc import Callable

from privit.cost.budgets.ladder import below_floor
from privit.cost.budgets.pricing import Pricer
from privit.plan import Plan

SHARES = 256
"""Shares of the sites that are tried: the steps between them."""


def plan_at_cost(pricer: Pricer, budget: float, plan_of: Callable[[float], Plan]) -> Plan:
    """The plan with the largest share of exact sites that a budget pays for.

    `plan_of` makes a method's plan from a share between 0 and 1: `lambda s: random_plan(spec, s, s, seed)`.
    Cost need not grow with every step of the share (a layer that is exact throughout may cost less than one
    that is mixed), so shares are tried from the largest down: a larger budget never has a smaller share.
    """
    cost = 0.0
    for step in range(SHARES, -1, -1):
        plan = plan_of(step / SHARES)
        cost = pricer.cost(plan)
        if cost <= budget:
            return plan
    raise below_floor(pricer.price, budget, cost)
