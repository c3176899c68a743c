"""Baselines keep exactly the counts that a search was given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privit.errors import BudgetError
from privit.plan import EXACT, Plan, check_plan
from privit.spec import PAPER_KINDS, Granularity, vit_spec
from privit.train.baselines import layerwise_plan, random_plan, spread_plan, without_last_layers

SPEC = vit_spec(8, 4, 12, 3, 3, 4, channels=1)
GRANULARITIES = [
    Granularity(*pair) for pair in itertools.product(("token", "element", "layer"), ("row", "head", "layer"))
]  # type: ignore[arg-type]
TOKENS, HEADS, DEPTH = SPEC.tokens, SPEC.blocks[0].heads, SPEC.depth


def kept(plan: Plan, kind: str) -> list[np.ndarray]:
    return [EXACT[ids] for ids in plan.layers[kind]]


@given(st.integers(0, DEPTH * TOKENS), st.integers(0, DEPTH * HEADS * TOKENS))
def test_baselines_keep_exactly_the_counts_asked_for(gelu: int, softmax: int) -> None:
    for make in (random_plan, layerwise_plan, spread_plan):
        plan = make(SPEC, gelu, softmax)
        check_plan(SPEC, plan)
        assert (sum(plan.kept("gelu")), sum(plan.kept("softmax"))) == (gelu, softmax)


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=lambda g: f"{g.gelu}-{g.softmax}")
def test_shares_are_of_the_sites_of_the_granularity(granularity: Granularity) -> None:
    for plan in (
        random_plan(SPEC, 0.5, 1.0, granularity=granularity),
        layerwise_plan(SPEC, 0.5, 1.0, granularity),
        spread_plan(SPEC, 0.5, 1.0, granularity),
    ):
        check_plan(SPEC, plan)
        assert sum(plan.kept("gelu")) == plan.total("gelu") // 2
        assert sum(plan.kept("softmax")) == plan.total("softmax")


def test_layers_are_kept_whole_from_the_first_on() -> None:
    plan = layerwise_plan(SPEC, TOKENS + 2, HEADS * TOKENS + HEADS)
    assert plan.kept("gelu") == [TOKENS, 2, 0]
    assert plan.kept("softmax") == [HEADS * TOKENS, HEADS, 0]


def test_what_is_left_goes_to_the_first_tokens_of_every_head() -> None:
    plan = layerwise_plan(SPEC, 2, HEADS + 1)
    assert np.flatnonzero(kept(plan, "gelu")[0]).tolist() == [0, 1]
    rows = kept(plan, "softmax")[0]
    assert rows[:, 0].all()
    assert rows[0, 1]
    assert rows.sum() == HEADS + 1


def test_a_random_plan_follows_its_seed() -> None:
    first, again, other = (random_plan(SPEC, 5, 20, seed=seed) for seed in (0, 0, 1))
    assert first.hash() == again.hash()
    assert first.hash() != other.hash()


def test_a_random_plan_spreads_over_all_layers() -> None:
    plans = [random_plan(SPEC, 0.5, 0.5, seed=seed) for seed in range(50)]
    means = np.mean([[*plan.kept("gelu"), *plan.kept("softmax")] for plan in plans], axis=0)
    expected = [TOKENS / 2] * DEPTH + [HEADS * TOKENS / 2] * DEPTH
    np.testing.assert_allclose(means, expected, rtol=0.2)


def test_operators_can_be_named() -> None:
    plan = layerwise_plan(
        SPEC, 3, 3, exact={"gelu": "relu"}, stand_in={"gelu": "quadratic", "softmax": "scale_attn"}
    )
    names = {entry.name for kind in PAPER_KINDS for i in range(DEPTH) for entry in plan.operators(kind, i)}
    assert names == {"relu", "quadratic", "softmax", "scale_attn"}


def test_a_budget_above_the_sites_is_refused() -> None:
    with pytest.raises(BudgetError, match=f"budget is 99, but the model has {DEPTH * TOKENS} gelu sites"):
        random_plan(SPEC, 99, 0)


@given(st.integers(0, DEPTH * TOKENS), st.integers(0, DEPTH * HEADS * TOKENS))
def test_a_spread_plan_gives_every_layer_the_same_or_one_more(gelu: int, softmax: int) -> None:
    plan = spread_plan(SPEC, gelu, softmax)
    for kind in plan.layers:
        assert max(plan.kept(kind)) - min(plan.kept(kind)) <= 1


def test_a_spread_plan_keeps_tokens_far_apart_the_class_token_first() -> None:
    plan = spread_plan(SPEC, 2 * DEPTH, HEADS * 2 * DEPTH)
    for layer in range(DEPTH):
        assert np.flatnonzero(kept(plan, "gelu")[layer]).tolist() == [0, 4]
        assert (kept(plan, "softmax")[layer] == [[True, False, False, False, True]] * HEADS).all()


def test_layers_are_turned_from_the_last_on_and_the_others_left_alone() -> None:
    plan = random_plan(SPEC, 0.5, 0.5)
    turned = without_last_layers(plan, 2)
    for kind in PAPER_KINDS:
        assert turned.kept(kind) == [plan.kept(kind)[0], 0, 0]
        np.testing.assert_array_equal(turned.layers[kind][0], plan.layers[kind][0])
    assert turned.kept("norm") == plan.kept("norm")
    check_plan(SPEC, turned)
    assert without_last_layers(plan, 0).hash() == plan.hash()


def test_one_kind_can_be_turned_alone() -> None:
    plan = random_plan(SPEC, 0.5, 0.5)
    turned = without_last_layers(plan, DEPTH, {"gelu": "quad"}, ("gelu",))
    assert {entry.name for i in range(DEPTH) for entry in turned.operators("gelu", i)} == {"quad"}
    assert turned.kept("softmax") == plan.kept("softmax")


def test_more_layers_than_there_are_cannot_be_turned() -> None:
    with pytest.raises(BudgetError, match=f"{DEPTH + 1} layers .* the model has {DEPTH}"):
        without_last_layers(random_plan(SPEC, 0, 0), DEPTH + 1)
