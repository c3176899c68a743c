"""Caps beside a budget in cost: who may become exact, and which plans keep to every cap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from privit.cost.budgets.budget import Budget
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import JointPricer, Pricer
from privit.errors import BudgetError
from privit.plan import Plan, plan_from_counts, uniform_plan
from privit.spec import KINDS, Granularity, sites, vit_spec
from privit.train.descent.afford import Affordable, settle
from privit.train.descent.caps import NO_CAPS, Caps, caps_of, handed_out
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.student.vit import Student

SPEC = vit_spec(image_size=12, patch_size=4, width=16, depth=4, heads=2, classes=10, channels=1)
OPTIONS = {
    "gelu": ("affine", "quadratic", "gelu"),
    "softmax": ("static_attn", "quadratic_attn", "softmax"),
    "norm": ("reused_norm", "linear_norm", "layer_norm"),
}
EXACT_NORMS = OPTIONS | {"norm": ("layer_norm",)}
PRICE = Price("bytes", "semi2k-benchmark", "wan")


def losses(seed: int = 0) -> dict[str, list[np.ndarray]]:
    draw = np.random.default_rng(seed)
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS}
    for kind, shapes in sites(SPEC, Granularity()).items():
        for shape in shapes:
            free = np.exp(draw.normal(0, 1, size=shape) + draw.normal())
            found[kind].append(np.stack([free, 0.3 * free, 0 * free]))
    return found


def affordable() -> Affordable:
    return Affordable(SPEC, Granularity(), PRICE, OPTIONS, losses(), {})


def test_shares_of_sites_become_numbers_and_units_stay() -> None:
    found = caps_of(Budget({"gelu": 0.1, "softmax": 7}, "b", 5.0, {"rounds": 9}), SPEC, Granularity())
    assert found == Caps({"gelu": 4, "softmax": 7}, {"rounds": 9})
    with pytest.raises(BudgetError, match="has 40 gelu sites"):
        caps_of(Budget({"gelu": 41}, "b", 5.0), SPEC, Granularity())


def test_a_plan_breaks_a_cap_on_sites_or_on_another_unit() -> None:
    plan = uniform_plan(SPEC)
    rounds = Pricer(SPEC, Price("rounds", "semi2k-benchmark")).cost(plan)
    assert not NO_CAPS.broken(plan, PRICE, SPEC, {})
    assert Caps({"gelu": 39}).broken(plan, PRICE, SPEC, {})
    assert not Caps({"gelu": 40}, {"rounds": rounds}).broken(plan, PRICE, SPEC, {})
    assert Caps({}, {"rounds": rounds - 1}).broken(plan, PRICE, SPEC, {})


def test_the_budget_is_spent_under_both_caps() -> None:
    found = affordable()
    dense = found.pricer.cost(uniform_plan(SPEC))
    budget = 0.7 * dense
    free = found.plan(budget)
    caps = Caps({"gelu": 6, "softmax": 9, "norm": 4}, {"rounds": 500})
    plan = found.plan(budget, caps=caps)
    assert sum(free.kept("gelu")) > 6
    assert 0 < sum(plan.kept("gelu")) <= 6
    assert 0 < sum(plan.kept("softmax")) <= 9
    assert sum(plan.kept("norm")) <= 4
    assert found.pricer.cost(plan) <= budget
    assert Pricer(SPEC, Price("rounds", "semi2k-benchmark")).cost(plan) <= 500
    assert found.breaks(free, caps)
    assert not found.breaks(plan, caps)


def test_two_units_of_the_engine_are_spent_together() -> None:
    found = affordable()
    rounds = Pricer(SPEC, Price("rounds", "semi2k-benchmark"))
    budget = 0.6 * found.pricer.cost(uniform_plan(SPEC))
    most = rounds.cost(uniform_plan(SPEC)) * 0.6
    plan = found.plan(budget, caps=Caps({}, {"rounds": most}))
    spent = {"bytes": found.pricer.cost(plan) / budget, "rounds": rounds.cost(plan) / most}
    assert max(spent.values()) <= 1
    assert max(spent.values()) > 0.9
    assert min(spent.values()) > 0.6
    joint = JointPricer(SPEC, PRICE, {}, most={"bytes": budget, "rounds": most})
    assert joint.cost(plan) == pytest.approx(budget * max(spent.values()))
    assert joint.weight(joint.rest(Granularity())) < joint.value(joint.rest(Granularity()))


def spread_student(plan: Plan, ratio: float) -> Student:
    """A student whose LayerNorms see tokens of variance 1 to `ratio`, and which computes nothing else."""
    student = Student(SPEC)
    student.set_plan(plan)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.zero_()
        signs = torch.tensor([1.0, -1.0]).repeat(SPEC.width // 2)
        student.position.copy_(torch.logspace(0, 0.5, SPEC.tokens, base=ratio)[:, None] * signs)
    return student


def test_a_model_whose_own_ranges_break_a_cap_every_time_is_refused_in_those_words() -> None:
    # Every student that is made for a plan has wider ranges, and so longer functions, than were priced.
    ratios = [3.2, 6.4, 19.0, 38.0]
    cheapest = uniform_plan(SPEC, OPTIONS["gelu"][0], OPTIONS["softmax"][0])
    pixels = np.zeros((1, 1, 12, 12))
    ranges = [measure_ranges(spread_student(cheapest, ratio), pixels) for ratio in ratios]
    price = Price("rounds", "semi2k-benchmark")
    floors = [Pricer(SPEC, price, found).cost(cheapest) for found in ranges]
    assert floors == sorted(set(floors))
    norms = [layer[-1:] for layer in losses()["norm"]]
    known = losses() | {"norm": norms}
    found = Affordable(SPEC, Granularity(), PRICE, EXACT_NORMS, known, dict(ranges[0]))
    left = iter(ratios[1:])
    with pytest.raises(BudgetError, match=r"no plan was found within .* and its caps"):
        settle(
            found,
            1e7,
            lambda plan: spread_student(plan, next(left)),
            pixels,
            None,
            Caps({}, {"rounds": floors[2]}),
        )
    assert list(left) == []


def test_sites_of_a_layer_that_does_without_go_to_one_that_does_not() -> None:
    asked: list[list[int]] = []

    def first_layers(may: dict[str, list[np.ndarray]]) -> Plan:
        asked.append([int(layer.sum()) for layer in may["gelu"]])
        counts = [count if layer in (0, 2) else 0 for layer, count in enumerate(asked[-1])]
        return plan_from_counts(SPEC, counts, [0] * SPEC.depth)

    # Equally valuable but in the last layer, so that sites are named in the order of layers.
    even = {
        kind: [np.stack([np.ones(s), np.ones(s), np.zeros(s)]) for s in shapes]
        for kind, shapes in sites(SPEC, Granularity()).items()
    }
    even["gelu"][3][1] += 1
    plan = handed_out(Caps({"gelu": 15}), even, first_layers)
    assert asked == [[5, 0, 0, 10], [10, 5, 0, 0], [10, 0, 5, 0]]
    assert plan.kept("gelu") == [10, 0, 5, 0]
