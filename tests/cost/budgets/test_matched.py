"""Other methods' plans at a given cost."""

from __future__ import annotations

import numpy as np
import pytest

from privit.cost.budgets.matched import plan_at_cost
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.errors import BudgetError
from privit.plan import Plan, plan_from_kept, uniform_plan
from privit.spec import KINDS, Granularity, sites, vit_spec

SPEC = vit_spec(image_size=12, patch_size=4, width=16, depth=3, heads=2, classes=10, channels=1)
PRICER = Pricer(SPEC, Price("bytes", "semi2k-benchmark"))


def first_sites(share: float) -> Plan:
    """Of every layer the first sites."""
    kept = {}
    for kind, shapes in sites(SPEC, Granularity()).items():
        kept[kind] = [(np.arange(np.prod(s)) < share * np.prod(s)).reshape(s) for s in shapes]
    return plan_from_kept(Granularity(), kept)


def test_a_method_spends_what_it_may_and_a_larger_budget_never_keeps_less() -> None:
    floor, dense = (PRICER.cost(first_sites(share)) for share in (0.0, 1.0))
    kept_before = -1
    for budget in np.linspace(floor, dense, 6):
        plan = plan_at_cost(PRICER, float(budget), first_sites)
        assert PRICER.cost(plan) <= budget
        kept = sum(sum(plan.kept(kind)) for kind in KINDS)
        assert kept >= kept_before
        kept_before = kept
    assert kept_before == sum(uniform_plan(SPEC).total(kind) for kind in KINDS)


def test_a_budget_below_every_plan_is_refused() -> None:
    with pytest.raises(BudgetError, match="all cheap costs"):
        plan_at_cost(PRICER, 1000.0, first_sites)
