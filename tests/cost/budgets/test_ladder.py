"""Budgets in cost: never above, within 5 % below, and a larger one never keeps less."""

from __future__ import annotations

import numpy as np
import pytest

from privit.cost.budgets.groups import Group, falling, steps
from privit.cost.budgets.ladder import Ladder, Losses, cheapest_plan, make_ladder
from privit.cost.budgets.marginal import charges
from privit.cost.budgets.price import Price, Unit
from privit.cost.budgets.pricing import Pricer
from privit.cost.budgets.rungs import WITHIN
from privit.cost.estimate import estimate
from privit.errors import BudgetError
from privit.operators import operator
from privit.plan import check_plan, plan_from_counts, uniform_plan
from privit.spec import KINDS, PAPER_KINDS, Granularity, Spec, sites, vit_spec, with_tokens

WHOLE = vit_spec(image_size=12, patch_size=4, width=16, depth=6, heads=2, classes=10, channels=1)
SPEC = with_tokens(WHOLE, [10, 10, 10, 10, 5, 5])
OPTIONS = {
    "gelu": ("affine", "quadratic", "gelu"),
    "softmax": ("static_attn", "quadratic_attn", "softmax"),
    "norm": ("reused_norm", "linear_norm", "layer_norm"),
}
BUDGETS = 20
UNITS: list[tuple[Unit, str]] = [
    ("bytes", "semi2k-benchmark"),
    ("rounds", "semi2k-benchmark"),
    ("seconds", "aby3"),
    ("relu_ops", "cheetah"),
]


def losses(spec: Spec, seed: int = 0) -> Losses:
    """Losses as they are measured: some layers matter more, a fitted stand-in loses less than a free one."""
    draw = np.random.default_rng(seed)
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS}
    for kind, shapes in sites(spec, Granularity()).items():
        for shape in shapes:
            free = np.exp(draw.normal(0, 1.5, size=shape) + draw.normal())
            found[kind].append(np.stack([free, free * draw.uniform(0.02, 0.5, size=shape), 0 * free]))
    return found


@pytest.fixture(scope="module", params=UNITS, ids=lambda unit: unit[0])
def ladder(request: pytest.FixtureRequest) -> Ladder:
    unit, protocol = request.param
    return make_ladder(Pricer(SPEC, Price(unit, protocol, "wan")), Granularity(), OPTIONS, losses(SPEC))


def test_twenty_random_budgets_are_spent_and_never_overspent(ladder: Ladder) -> None:
    dense = ladder.pricer.cost(uniform_plan(SPEC))
    budgets = np.sort(np.random.default_rng(1).uniform(ladder.floor, dense, BUDGETS))
    kept_before = -1
    for budget in budgets:
        plan = ladder.plan(ladder.index_for(float(budget)))
        cost = ladder.pricer.cost(plan)
        assert (1 - WITHIN) * budget <= cost <= budget
        kept = sum(sum(plan.kept(kind)) for kind in KINDS)
        assert kept >= kept_before
        kept_before = kept


def test_the_ladder_goes_from_all_cheap_to_all_exact_and_nothing_ever_falls(ladder: Ladder) -> None:
    first, last = ladder.plan(0), ladder.plan(len(ladder.rungs) - 1)
    assert all(sum(first.kept(kind)) == 0 for kind in KINDS)
    dense = ladder.pricer.cost(uniform_plan(SPEC))
    assert ladder.pricer.cost(last) == pytest.approx(dense, rel=1e-9)
    for figure in ("cost", "avoided", "kept"):
        values = [getattr(rung, figure) for rung in ladder.rungs]
        assert values == sorted(values)


def test_a_budget_below_the_floor_is_refused_with_the_floor(ladder: Ladder) -> None:
    with pytest.raises(BudgetError, match="but all cheap costs") as refused:
        ladder.index_for(0.9 * ladder.floor)
    assert ladder.pricer.price.show(ladder.floor) in refused.value.message
    assert "smaller image" in refused.value.hint


@pytest.mark.parametrize("protocol", ["semi2k-benchmark", "aby3", "cheetah"])
def test_a_price_is_what_privit_cost_estimates(protocol: str) -> None:
    ranges = {f"blocks.0.softmax.{name}": 2.0 for name in ("drop", "peak", "mean_exp")}
    plan = plan_from_counts(SPEC, [3, 0, 1, 10, 0, 1], [20, 0, 2, 4, 0, 1], norms=[1, 2, 0, 1, 0, 2])
    expected = estimate(SPEC, plan, "spu", protocol=protocol, network="wan", ranges=ranges)
    for unit, key in (("bytes", "sent_bytes"), ("rounds", "rounds"), ("seconds", "seconds")):
        pricer = Pricer(SPEC, Price(unit, protocol, "wan"), ranges)  # type: ignore[arg-type]
        assert pricer.cost(plan) == pytest.approx(expected[key], rel=1e-9)
        cells = [
            pricer.cell(k, i, ids, plan.granularity) for k in KINDS for i, ids in enumerate(plan.layers[k])
        ]
        summed = pricer.value(pricer.rest(plan.granularity) + np.sum(cells, axis=0))
        # On CHEETAH a query's operations share what was prepared for others.
        assert summed == pytest.approx(expected[key], rel=0.03 if protocol == "cheetah" else 1e-6)


def test_relu_ops_are_priced_as_the_paper_does() -> None:
    plan = uniform_plan(SPEC, "identity", "squared_attn")
    assert Pricer(SPEC, Price("relu_ops")).cost(plan) == estimate(SPEC, plan, "paper").total


def test_groups_are_raised_as_a_whole_where_only_the_group_costs() -> None:
    """With a fixed charge and nothing per site, opening a group for one site and for all costs the same."""
    group = Group("gelu", 0, falling(np.array([[5.0, 1.0, 3.0, 2.0], [0.0] * 4])), np.zeros(4, np.int64))
    found = steps(group, lambda levels: 10.0 + 7.0 * bool(levels.any()), 1e-6)
    assert found[-1].levels.tolist() == [1, 1, 1, 1]
    assert {step.worth for step in found} == {11 / 7}


def test_sites_are_raised_by_loss_where_every_site_costs() -> None:
    group = Group("gelu", 0, falling(np.array([[5.0, 1.0, 3.0, 2.0], [0.0] * 4])), np.zeros(4, np.int64))
    found = steps(group, lambda levels: 10.0 + float(levels.sum()), 1e-6)
    assert [int(np.flatnonzero(step.levels)[-1]) for step in found][:1] == [0]
    assert [int(step.levels.sum()) for step in found] == [1, 2, 3, 4]
    assert [step.worth for step in found] == [5.0, 3.0, 2.0, 1.0]


def test_rounds_charge_groups_and_relu_ops_charge_sites() -> None:
    exact = uniform_plan(SPEC)
    cheap = uniform_plan(SPEC, "quadratic", "quadratic_attn")
    rounds = charges(Pricer(SPEC, Price("rounds", "semi2k-benchmark")), exact, cheap)
    assert max(rounds.site["softmax"]) < 0.05 * min(rounds.group["softmax"])
    paper = charges(Pricer(SPEC, Price("relu_ops")), exact, cheap)
    assert max(paper.group["gelu"] + paper.group["softmax"]) < 1e-3
    total = sum(
        n * found.site[k][i] + found.group[k][i]
        for found in (rounds,)
        for k, shapes in sites(SPEC, Granularity()).items()
        for i, n in enumerate(int(np.prod(shape)) for shape in shapes)
    )
    # LayerNorms are exact in both plans: they are not searched, and charge nothing.
    assert total == pytest.approx(sum(exact.total(kind) for kind in PAPER_KINDS))
    reused = uniform_plan(SPEC, "quadratic", "quadratic_attn", norm="reused_norm")
    assert min(charges(Pricer(SPEC, Price("rounds", "semi2k-benchmark")), exact, reused).site["norm"]) > 0


def test_a_ladder_made_in_a_moment_is_never_above_a_budget_either() -> None:
    pricer = Pricer(SPEC, Price("bytes", "semi2k-benchmark"))
    quick = make_ladder(pricer, Granularity(), OPTIONS, losses(SPEC), thorough=False)
    budget = 1.5 * quick.floor
    assert pricer.cost(quick.plan(quick.index_for(budget))) <= budget


@pytest.mark.parametrize("finely", ["layer", "class"])
def test_the_first_norm_has_nothing_to_reuse_and_hides_what_the_second_is_worth_to_nobody(
    finely: str,
) -> None:
    granularity = Granularity(norm=finely)  # type: ignore[arg-type]
    options = {"gelu": ("gelu",), "softmax": ("softmax",), "norm": ("reused_norm", "layer_norm")}
    shapes = sites(SPEC, granularity)
    given = {kind: [np.zeros((len(options[kind]), *s)) for s in shapes[kind]] for kind in KINDS}
    for layer in given["norm"]:
        layer[0] = 0.5
    given["norm"][0][0][0] = 1e12
    pricer = Pricer(SPEC, Price("rounds", "semi2k-benchmark"))
    found = make_ladder(pricer, granularity, options, given, thorough=False)
    for index in range(len(found.rungs)):
        check_plan(SPEC, found.plan(index))
    assert found.plan(0).hash() == cheapest_plan(SPEC, granularity, options).hash()
    assert found.floor == pricer.cost(uniform_plan(SPEC, granularity=granularity, norm="reused_norm"))
    assert pricer.cost(found.plan(len(found.rungs) - 1)) == pricer.cost(
        uniform_plan(SPEC, granularity=granularity)
    )


def test_no_plan_reuses_more_norms_in_a_row_than_it_may() -> None:
    pricer = Pricer(SPEC, Price("rounds", "semi2k-benchmark"))
    found = make_ladder(pricer, Granularity(), OPTIONS, losses(SPEC), thorough=False, most_reused=3)
    reused = operator("reused_norm").id
    for index in range(len(found.rungs)):
        norms = np.concatenate([layer.reshape(-1) for layer in found.plan(index).layers["norm"]])
        runs = "".join("r" if place == reused else " " for place in norms).split()
        assert max(map(len, runs), default=0) <= 3
    assert found.plan(0).hash() == cheapest_plan(SPEC, Granularity(), OPTIONS, 3).hash()
    assert found.floor > pricer.cost(cheapest_plan(SPEC, Granularity(), OPTIONS))


def test_the_paper_s_two_choices_make_a_ladder_too() -> None:
    two = {"gelu": ("identity", "gelu"), "softmax": ("squared_attn", "softmax"), "norm": ("layer_norm",)}
    given = {kind: [layer[-len(two[kind]) :] for layer in found] for kind, found in losses(SPEC).items()}
    pricer = Pricer(SPEC, Price("bytes", "semi2k-benchmark"))
    found = make_ladder(pricer, Granularity(), two, given)
    budget = 1.5 * found.floor
    plan = found.plan(found.index_for(budget))
    assert set(np.unique(plan.layers["gelu"][0])) <= {operator("identity").id, operator("gelu").id}
    assert 0.95 * budget <= pricer.cost(plan) <= budget
