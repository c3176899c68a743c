"""Searches under budgets in what a prediction costs: trained, without training, resumed, refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import FINETUNE, SEARCH

from privit.config import SearchConfig, check_config, free_choices, from_json, to_json
from privit.cost.budgets.budget import Budget, keep, spend
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.errors import BudgetError, RequestError
from privit.plan import load_plan
from privit.runs import load_run
from privit.spec import KINDS
from privit.train.descent.cost_descent import CostStage, cost_levels, cost_stage
from privit.train.descent.cost_ground import cost_ground
from privit.train.finetune import finetune
from privit.train.fitting.fit import FitConfig
from privit.train.search import search
from privit.train.stages import read_model
from privit.train.student.vit import Student
from privit.train.training_free import TrainingFreeConfig, search_without_training

FITTED = {"gelu": "quadratic", "softmax": "quadratic_attn"}
PRICE = Price("rounds", "semi2k-benchmark")
COST = replace(SEARCH, stand_in=FITTED, free=free_choices(FITTED), price=PRICE, epochs=12)
BUDGETS = (spend(230, "large"), spend(195, "small"))


def cost_of(run: Path, budget: str) -> float:
    spec = read_model(load_run(run)).subject.spec
    return Pricer(spec, PRICE).cost(load_plan(run / "budgets" / budget / "plan.safetensors"))


def check_budgets(result: dict[str, Any]) -> None:
    """Predicted at or below each budget, and a smaller one keeps no more."""
    for name, budget in (("large", 230), ("small", 195)):
        found = result["budgets"][name]
        assert found["budget_cost"] == budget
        assert 0.75 * budget < found["predicted_cost"] <= budget
        assert found["price"] == {"unit": "rounds", "protocol": "semi2k-benchmark", "network": "lan"}
    large, small = (result["budgets"][name] for name in ("large", "small"))
    assert sum(large[f"kept_{kind}"] for kind in KINDS) >= sum(small[f"kept_{kind}"] for kind in KINDS)


def test_one_descent_meets_several_budgets_in_cost(teacher_run: Path, tmp_path: Path) -> None:
    result = search(teacher_run, tmp_path / "search", replace(COST, budgets=BUDGETS))
    check_budgets(result)
    assert result["predicted_cost"] == result["budgets"]["small"]["predicted_cost"]
    assert search(teacher_run, tmp_path / "search", replace(COST, budgets=BUDGETS)) == result
    tuned = finetune(tmp_path / "search", tmp_path / "tuned", replace(FINETUNE, epochs=1), budget="large")
    assert tuned["plan"] == result["budgets"]["large"]["plan"]


def test_without_training_the_same_budgets_are_met(teacher_run: Path, tmp_path: Path) -> None:
    config = TrainingFreeConfig(
        budgets=BUDGETS, free=free_choices(FITTED), price=PRICE, fit=FitConfig(images=64), score_images=32
    )
    result = search_without_training(teacher_run, tmp_path / "run", config)
    check_budgets(result)
    # On these weights the ranges change nothing, so what was predicted is what the plan alone costs.
    assert result["budgets"]["large"]["predicted_cost"] <= cost_of(tmp_path / "run", "large")


def test_an_interrupted_descent_goes_on_as_if_nothing_had_happened(
    teacher_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(COST, budgets=BUDGETS, switch_learning_rate=1e-2, epochs=4)
    whole = search(teacher_run, tmp_path / "whole", config)
    end_epoch = CostStage.end_epoch

    def stopped(self: CostStage, loop: Any, record: dict[str, Any]) -> bool:
        if loop.epoch == 2:
            raise KeyboardInterrupt
        return end_epoch(self, loop, record)

    with monkeypatch.context() as patched:
        patched.setattr(CostStage, "end_epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            search(teacher_run, tmp_path / "stopped", config)
    resumed = search(teacher_run, tmp_path / "stopped", config)
    assert resumed["plan"] == whole["plan"]
    assert resumed["budgets"] == whole["budgets"]


def test_caps_beside_a_budget_are_all_kept_to(teacher_run: Path, tmp_path: Path) -> None:
    spec = read_model(load_run(teacher_run)).subject.spec
    bare = TrainingFreeConfig(
        free=free_choices(FITTED), price=PRICE, fit=FitConfig(images=64), score_images=32
    )
    free = search_without_training(teacher_run, tmp_path / "free", replace(bare, budgets=BUDGETS[:1]))
    in_bytes = Pricer(spec, replace(PRICE, unit="bytes"))
    spent = in_bytes.cost(load_plan(tmp_path / "free" / "budgets" / "large" / "plan.safetensors"))
    caps = Budget({"gelu": 2, "softmax": 3}, "large", 230, {"bytes": 0.95 * spent})
    capped = search_without_training(teacher_run, tmp_path / "capped", replace(bare, budgets=(caps,)))
    assert free["kept_gelu"] > 2 or free["kept_softmax"] > 3
    assert capped["kept_gelu"] <= 2
    assert capped["kept_softmax"] <= 3
    assert capped["predicted_cost"] <= 230
    plan = load_plan(tmp_path / "capped" / "budgets" / "large" / "plan.safetensors")
    assert in_bytes.cost(plan) <= 0.95 * spent
    searched = search(teacher_run, tmp_path / "searched", replace(COST, budgets=(caps,), epochs=4))
    assert searched["kept_gelu"] <= 2
    assert searched["kept_softmax"] <= 3


def test_a_cap_that_the_cheapest_plan_breaks_is_refused_with_its_own_floor(
    teacher_run: Path, tmp_path: Path
) -> None:
    budget = Budget({}, "cap", 230, {"bytes": 100})
    with pytest.raises(BudgetError, match=r"the budget is 0.0001 MB, but all cheap costs .* MB"):
        search(teacher_run, tmp_path / "search", replace(COST, budgets=(budget,)))


def test_a_budget_below_the_floor_is_refused_before_training(teacher_run: Path, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"the budget is 50 rounds, but all cheap costs \d+ rounds"):
        search(teacher_run, tmp_path / "search", replace(COST, budgets=(spend(50),)))
    assert not (tmp_path / "search").exists()


def test_a_group_with_few_switches_left_is_pressed_hardest(teacher_run: Path, tmp_path: Path) -> None:
    config = replace(COST, budgets=BUDGETS)
    teacher = read_model(load_run(teacher_run))
    student = Student(teacher.subject.spec, config.granularity, config.exact, config.stand_in)
    student.load_weights(teacher.weights)
    from privit.runs import open_run

    run = open_run(tmp_path / "run", "search", {}, {}, 1)
    ground = cost_ground(run, teacher, teacher.subject.load(), config, PRICE)
    stage = cost_stage(
        student,
        config,
        cost_levels(config.budgets, student.spec, config.granularity),
        lambda *_: None,
        ground,
        None,
    )
    switch = torch.ones(2, 5)
    even = stage._slope("softmax", 0, switch)
    stray = torch.zeros(2, 5)
    stray[0, 0] = 0.5
    alone = stage._slope("softmax", 0, stray)
    assert isinstance(even, torch.Tensor)
    assert isinstance(alone, torch.Tensor)
    assert float(alone[0, 0]) > 2 * float(even[0, 0])
    assert float(alone.sum() - alone[0, 0]) == pytest.approx(9 * float(alone[0, 1]))
    assert np.isfinite(stage._slope("softmax", 0, torch.zeros(2, 5)).numpy()).all()  # type: ignore[union-attr]


def test_a_config_with_cost_budgets_survives_json() -> None:
    config = replace(COST, budgets=BUDGETS)
    assert from_json(SearchConfig, to_json(config)) == config
    plain = to_json(SearchConfig())
    # A run that was started before there were budgets in cost is still the same run.
    assert plain["budgets"] == [{"sites": {"gelu": 0.1, "softmax": 0.1}, "name": "final"}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budgets": (spend(5),), "price": None}, "no price that says in which unit"),
        ({"budgets": (spend(5), keep(0.1, "other"))}, "are mixed"),
        ({"budgets": (keep(0.1),)}, "a price is given, but no budget in cost"),
        ({"budgets": (spend(-1),)}, "is -1, not above zero"),
        ({"budgets": (Budget({}, "both", 5.0, {"rounds": 9}),)}, "a cost and a cap in rounds"),
        ({"budgets": (Budget({}, "cap", 5.0, {"bytes": -9}),)}, "in bytes is -9, not a number above zero"),
        ({"budgets": (Budget({}, "cap", 5.0, {"miles": 9}),)}, "no unit is called 'miles'"),
        ({"budgets": (spend(5),), "price": Price("miles")}, "no unit is called 'miles'"),  # type: ignore[arg-type]
        ({"budgets": (spend(5),), "price": Price("bytes", "rot13")}, "no protocol is called 'rot13'"),
        ({"budgets": (spend(5),), "free": {"gelu": "softmax"}}, "no gelu operator is called 'softmax'"),
    ],
)
def test_what_is_wrong_with_a_cost_budget_is_said(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        check_config(replace(COST, **changes))
