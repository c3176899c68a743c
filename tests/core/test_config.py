"""Settings: what is refused, what presets say, and that JSON keeps them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privit.config import (
    Descent,
    FinetuneConfig,
    SearchConfig,
    TeacherConfig,
    check_config,
    from_json,
    to_json,
)
from privit.cost.budgets.budget import Budget, keep
from privit.errors import RequestError
from privit.presets import PRESETS, preset, with_strategy


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_free_of_problems_and_survives_json(name: str) -> None:
    chosen = preset(name)
    for config in (chosen.teacher, chosen.search, chosen.finetune):
        check_config(config)
        assert config.problems() == []
        assert from_json(type(config), to_json(config)) == config


def test_the_paper_preset_has_the_papers_numbers() -> None:
    paper = preset("paper")
    assert (paper.teacher.epochs, paper.teacher.learning_rate, paper.teacher.weight_decay) == (10, 1e-4, 1e-4)
    assert (paper.teacher.schedule, paper.teacher.decay_epochs, paper.teacher.batch_size) == ("step", 30, 64)
    assert (paper.search.epsilon, paper.search.penalty_warmup_epochs, paper.search.temperature) == (
        1e-3,
        5,
        4.0,
    )
    assert paper.search.descents["gelu"] == Descent(3e-5, 1.1, 2)
    assert paper.search.descents["softmax"] == Descent(3e-5, 1.1, 200)
    assert (paper.finetune.epochs, paper.finetune.schedule) == (50, "cosine")


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(RequestError, match=r"(?s)3 problems.*epochs is 0.*learning_rate is -1.*seed is -1"):
        check_config(FinetuneConfig(epochs=0, learning_rate=-1, seed=-1))


def test_an_epsilon_below_ten_switch_learning_rates_is_refused() -> None:
    risky = SearchConfig(switch_learning_rate=1e-2, epsilon=0.05)
    assert "give at least 0.1" in risky.problems()[0]
    assert replace(risky, epsilon=0.1).problems() == []


@pytest.mark.parametrize(
    ("value", "found"), [(-1, "below zero"), (float("nan"), "not a number"), ("ten", "not a number")]
)
def test_a_budget_that_is_no_number_of_sites_is_refused(value: float, found: str) -> None:
    config = SearchConfig(budgets=(Budget({"gelu": value, "softmax": 0.1}),))
    assert any(found in problem for problem in config.problems())


def test_budgets_need_names_of_their_own_that_can_be_folders() -> None:
    assert "share a name" in SearchConfig(budgets=(keep(0.5), keep(0.1))).problems()[0]
    assert "cannot be a folder's" in SearchConfig(budgets=(keep(0.5, "../up"),)).problems()[0]
    assert "no budget" in SearchConfig(budgets=()).problems()[0]


def test_kinds_operators_and_swaps_are_checked_by_name() -> None:
    assert "'relu6' is not a kind" in SearchConfig(kinds=("relu6",)).problems()[0]
    assert "nothing to search" in SearchConfig(kinds=()).problems()[0]
    assert SearchConfig(stand_in={"gelu": "squared_attn", "softmax": "squared_attn"}).problems()
    assert FinetuneConfig(swap={"gelu": "softmax"}).problems()
    assert FinetuneConfig(swap={"gelu": "relu"}).problems() == []


def test_a_value_of_another_type_or_choice_is_refused_before_anything_is_compared() -> None:
    with pytest.raises(RequestError, match="epochs is 'many', but int was expected"):
        check_config(from_json(TeacherConfig, {"epochs": "many"}))
    with pytest.raises(RequestError, match="schedule is 'linear', not one of constant, step, cosine"):
        check_config(TeacherConfig(schedule="linear"))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="budgets is 3"):
        from_json(SearchConfig, {"budgets": 3})
    assert from_json(SearchConfig, {"kinds": "gelu"}).kinds == ("gelu",)
    check_config(TeacherConfig(learning_rate=1, gradient_clip=None, image_size=None))


def test_a_learning_rate_warm_up_where_there_is_none_names_the_setting_of_the_penalties() -> None:
    (problem,) = SearchConfig(warmup_epochs=3).problems()
    assert "a constant learning rate does not warm up" in problem
    assert "penalty_warmup_epochs" in problem
    assert SearchConfig(warmup_epochs=3, schedule="cosine").problems() == []


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="no setting learning_rat"):
        from_json(TeacherConfig, {"learning_rat": 1.0})


def test_strategies_differ_as_the_appendix_says() -> None:
    chosen = {number: with_strategy(preset("paper"), number) for number in range(1, 6)}
    when = [chosen[n].search.binarize_when for n in range(1, 6)]
    assert when == ["late", "late", "late", "early", "early"]
    assert [chosen[n].search.descents["gelu"].min_drop for n in range(1, 6)] == [2, 0, 0, 0, 2]
    assert [chosen[n].search.descents["softmax"].min_drop for n in range(1, 6)] == [200, 0, 0, 0, 200]
    assert [chosen[n].finetune.epochs for n in range(1, 6)] == [10, 10, 10, 10, 50]
    descents = chosen[3].search.descents
    assert descents["softmax"].penalty == pytest.approx(20 * descents["gelu"].penalty)
    assert all(chosen[n].search.problems() == [] for n in chosen)
    with pytest.raises(RequestError, match="no strategy 6"):
        with_strategy(preset("paper"), 6)
