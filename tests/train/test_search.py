"""The search: penalties, binarization, budgets, and the whole descent on a tiny model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from tiny import GELU_SITES, SEARCH, SOFTMAX_SITES

from privit.config import Descent, SearchConfig
from privit.cost.budgets.budget import Budget, keep
from privit.errors import BudgetError, RequestError
from privit.plan import load_plan
from privit.runs import load_run
from privit.spec import PAPER_KINDS, vit_spec
from privit.train.descent.binarize import active, keep_above, keep_ranked
from privit.train.descent.descent import SearchStage, levels_of
from privit.train.loop.optimize import make_optimizer
from privit.train.loop.schedule import next_penalty, start_penalty
from privit.train.search import search
from privit.train.student.vit import Student

SPEC = vit_spec(8, 4, 16, 2, 2, 10, channels=1)


def test_a_penalty_grows_only_after_warm_up_and_only_when_the_count_fell_by_too_little() -> None:
    descent = Descent(penalty=1.0, growth=2.0, min_drop=5)
    start = start_penalty(descent, 100)
    assert next_penalty(start, 97, descent, 100, may_grow=True).value == 2.0
    assert next_penalty(start, 95, descent, 100, may_grow=True).value == 1.0
    assert next_penalty(start, 97, descent, 100, may_grow=False).value == 1.0
    share = replace(descent, min_drop=0.1)
    assert next_penalty(start, 91, share, 100, may_grow=True).value == 2.0
    assert next_penalty(start, 90, share, 100, may_grow=True).value == 1.0


def test_the_count_is_compared_with_the_lowest_so_far_and_not_with_the_epoch_before() -> None:
    descent = Descent(penalty=1.0, growth=2.0, min_drop=5)
    after = start_penalty(descent, 100)
    for count in (60, 90):
        after = next_penalty(after, count, descent, 100, may_grow=False)
    assert after.lowest == 60
    assert next_penalty(after, 80, descent, 100, may_grow=True).value == 2.0


def test_with_a_threshold_of_zero_a_penalty_grows_only_when_the_count_rose() -> None:
    descent = Descent(penalty=1.0, growth=2.0, min_drop=0)
    start = start_penalty(descent, 100)
    lower = next_penalty(start, 50, descent, 100, may_grow=True)
    assert lower.value == 1.0
    assert next_penalty(lower, 50, descent, 100, may_grow=True).value == 1.0
    assert next_penalty(lower, 51, descent, 100, may_grow=True).value == 2.0


@given(
    some.lists(some.floats(0, 1, width=32), min_size=6, max_size=6),
    some.integers(0, 6),
)
def test_ranking_keeps_exactly_the_budget_and_nothing_below_what_it_drops(
    values: list[float], budget: int
) -> None:
    layers = [np.array(values[:4], np.float32).reshape(2, 2), np.array(values[4:], np.float32)]
    kept = keep_ranked(layers, budget, [np.zeros_like(v) for v in layers])
    chosen = np.concatenate([k.ravel() for k in kept])
    flat = np.array(values, np.float32)
    assert chosen.sum() == budget
    if 0 < budget < 6:
        assert flat[chosen].min() >= flat[~chosen].max()


def test_a_larger_budget_only_adds_sites() -> None:
    values = [np.random.default_rng(0).random(50).round(1)]
    history = [np.random.default_rng(1).random(50)]
    for budget in range(50):
        small, large = (keep_ranked(values, b, history)[0] for b in (budget, budget + 1))
        assert (large | small == large).all()


def test_among_dead_switches_those_that_stayed_up_longer_are_kept() -> None:
    kept = keep_ranked([np.zeros(4)], 2, [np.array([1.0, 4.0, 2.0, 4.0])])
    assert kept[0].tolist() == [False, True, False, True]


def test_a_switch_counts_as_active_only_above_epsilon() -> None:
    values = [np.array([0.0, 0.1, 0.2]), np.array([[1.0]])]
    assert active(values, 0.1) == 2
    assert [k.tolist() for k in keep_above(values, 0.1)] == [[False, False, True], [[True]]]


def test_budgets_larger_than_the_model_are_refused_with_its_sites() -> None:
    with pytest.raises(BudgetError, match="budget is 300, but the model has 10 gelu sites"):
        levels_of((Budget({"gelu": 300, "softmax": 0.1}),), SPEC, SearchConfig())
    with pytest.raises(BudgetError, match="one descent cannot meet both"):
        levels_of(
            (Budget({"gelu": 5, "softmax": 1}, "a"), Budget({"gelu": 1, "softmax": 5}, "b")), SPEC, SEARCH
        )


def test_switches_without_use_reach_zero_exactly_and_stay_within_bounds() -> None:
    torch.manual_seed(0)
    student = Student(SPEC)
    config = replace(SEARCH, switch_learning_rate=0.01, epsilon=0.1)
    stage = SearchStage(student, config, levels_of(config.budgets, SPEC, config), lambda *_: None)
    optimizer = make_optimizer(student, config, config.switch_learning_rate)
    for group in optimizer.param_groups:
        group["lr"] = group["base"]
    images = torch.randn(8, 1, 8, 8)
    for _ in range(150):
        optimizer.zero_grad()
        (student(images).square().mean() * 1e-4).backward()
        stage.before_step()
        optimizer.step()
        stage.after_step()
        for kind in PAPER_KINDS:
            assert all(s.min() >= 0 and s.max() <= 1 for s in student.switches(kind))
    assert {stage.count(kind) for kind in PAPER_KINDS} == {0}
    assert all(float(s.detach().max()) == 0 for s in student.switches("gelu"))


def test_a_search_meets_its_budget_fully_and_says_what_each_layer_keeps(
    teacher_run: Path, tmp_path: Path
) -> None:
    result = search(teacher_run, tmp_path / "search", SEARCH)
    assert (result["kept_gelu"], result["kept_softmax"]) == (0.2 * GELU_SITES, 0.2 * SOFTMAX_SITES)
    assert {kind: sum(result["kept"][kind]) for kind in PAPER_KINDS} == {"gelu": 2, "softmax": 4}
    assert result["granularity"] == {"gelu": "token", "softmax": "row", "norm": "layer"}
    records = load_run(tmp_path / "search", "search").metrics()
    assert result["epochs"] == len(records) < SEARCH.epochs
    needed = {"active_gelu", "lambda_softmax", "cut_accuracy", "budget_accuracy", "validation_accuracy"}
    assert needed <= records[0].keys()
    assert records[-1]["cut_accuracy"] > 0.2
    assert search(teacher_run, tmp_path / "search", SEARCH) == result
    with pytest.raises(RequestError, match="seed is 0 there, 1 here"):
        search(teacher_run, tmp_path / "search", replace(SEARCH, seed=1))


def test_one_descent_yields_a_cut_for_each_budget(teacher_run: Path, tmp_path: Path) -> None:
    config = replace(SEARCH, budgets=(keep(0.6, "most"), keep(0.2, "few"), keep(0.0, "none")))
    result = search(teacher_run, tmp_path / "search", config)
    assert [result["budgets"][n]["kept_gelu"] for n in ("most", "few", "none")] == [6, 2, 0]
    assert [result["budgets"][n]["kept_softmax"] for n in ("most", "few", "none")] == [12, 4, 0]
    plans = [load_plan(tmp_path / "search" / "budgets" / n / "plan.safetensors") for n in ("most", "none")]
    assert [sum(plan.kept("softmax")) for plan in plans] == [12, 0]
    assert result["kept_gelu"] == 0


def test_a_budget_of_everything_needs_no_training_and_keeps_the_teacher(
    teacher_run: Path, tmp_path: Path
) -> None:
    result = search(teacher_run, tmp_path / "search", replace(SEARCH, budgets=(keep(1.0),)))
    teacher = load_run(teacher_run).result()
    assert teacher is not None
    assert (result["epochs"], result["kept_gelu"]) == (0, GELU_SITES)
    assert result["accuracy"] == teacher["accuracy"]


def test_a_kind_that_is_not_switched_keeps_every_site(teacher_run: Path, tmp_path: Path) -> None:
    config = replace(SEARCH, kinds=("gelu",), exact={"gelu": "relu", "softmax": "softmax"})
    result = search(teacher_run, tmp_path / "search", config)
    assert (result["kept_gelu"], result["kept_softmax"]) == (2, SOFTMAX_SITES)
    plan = load_plan(tmp_path / "search" / "plan.safetensors")
    assert "relu" in {o.name for i in range(2) for o in plan.operators("gelu", i)}


@pytest.mark.parametrize("binarize", ["rank", "threshold"])
def test_late_binarization_and_thresholds_stay_within_the_budget(
    teacher_run: Path, tmp_path: Path, binarize: str
) -> None:
    config = replace(SEARCH, binarize_when="late", binarize=binarize, distill=False)
    result = search(teacher_run, tmp_path / "search", config)
    assert result["kept_gelu"] <= 2
    assert result["kept_softmax"] <= 4


def test_a_search_out_of_epochs_is_cut_by_rank_with_a_warning(teacher_run: Path, tmp_path: Path) -> None:
    config = replace(SEARCH, epochs=1, budgets=(keep(0.5, "half"), keep(0.2)), start="random")
    result = search(teacher_run, tmp_path / "search", config)
    assert (result["kept_gelu"], result["budgets"]["half"]["kept_gelu"]) == (2, 5)
    assert "still active, above the budget of 2 gelu, 4 softmax" in result["warnings"][-1]


def test_a_search_needs_a_finished_teacher(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not a run"):
        search(tmp_path, tmp_path / "search", SEARCH)
