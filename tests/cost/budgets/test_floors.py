"""What a plan costs at the least holds for every model."""

from __future__ import annotations

from privit.cost.budgets.floors import least_cost, least_cost_of, narrowest
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.plan import uniform_plan
from privit.spec import Granularity, vit_spec

SPEC = vit_spec(image_size=8, patch_size=4, width=8, depth=2, heads=2, classes=3, channels=1)
PRICE = Price("rounds", "semi2k-benchmark")


def test_no_ranges_make_a_plan_cheaper_than_its_least_cost() -> None:
    plan = uniform_plan(SPEC)
    wide = {name: 40.0 if "low" not in name else 0.01 for name in narrowest(SPEC)}
    least = least_cost_of(plan, SPEC, PRICE)
    assert least < Pricer(SPEC, PRICE).cost(plan)
    assert least <= Pricer(SPEC, PRICE, wide).cost(plan)


def test_a_plan_of_one_operator_for_each_kind_is_named_by_these() -> None:
    names = ("affine", "static_attn", "layer_norm")
    plan = uniform_plan(SPEC, "affine", "static_attn", norm="layer_norm")
    assert least_cost(SPEC, PRICE, Granularity(), *names) == least_cost_of(plan, SPEC, PRICE)
