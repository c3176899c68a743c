"""Budgets in cost on the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privit.artifact import save_artifact
from privit.cli import main
from privit.cli.budgeting import FITTED, measured, show_kept, with_choices, with_cost_budgets
from privit.config import SearchConfig, check_config
from privit.cost.budgets.pricing import Price


def test_budgets_are_named_by_unit_and_amount_the_largest_first() -> None:
    config = with_cost_budgets(SearchConfig(), {"bytes": (20e6, 60e6), "seconds": ()}, "aby3", "wan")
    assert [(budget.name, budget.cost) for budget in config.budgets] == [
        ("bytes-60000000", 60e6),
        ("bytes-20000000", 20e6),
    ]
    assert config.price == Price("bytes", "aby3", "wan")
    check_config(config)
    small = with_cost_budgets(SearchConfig(), {"seconds": (2.5,)}, "cheetah", "lan")
    assert small.budgets[0].name == "seconds-2.5"


def test_without_a_budget_in_cost_nothing_changes() -> None:
    config = SearchConfig()
    assert with_cost_budgets(config, {"bytes": (), "rounds": ()}, "aby3", "wan") is config


def test_an_amount_in_a_second_unit_and_sites_are_caps() -> None:
    costs = {"bytes": (2.0, 1.0), "relu_ops": (3.0,)}
    found = with_cost_budgets(SearchConfig(), costs, "aby3", "wan", {"gelu": 0.1})
    assert [budget.cost for budget in found.budgets] == [2.0, 1.0]
    assert all(budget.caps == {"relu_ops": 3.0} for budget in found.budgets)
    assert all(budget.sites == {"gelu": 0.1} for budget in found.budgets)


def test_every_kind_with_a_square_gets_a_third_choice_without_one() -> None:
    fitted = with_choices(SearchConfig(), fitted=True)
    assert (fitted.stand_in, fitted.free) == (FITTED, {"gelu": "affine", "softmax": "constant_attn"})
    assert with_choices(SearchConfig(), fitted=False).free == {"softmax": "uniform_attn"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--keep", "0.1", "0.2", "--max-bytes", "1e6"], "several shares beside a budget in cost"),
        (["--keep", "0.1", "--gelu-budget", "3", "--max-bytes", "1e6"], "beside a budget per kind"),
        (["--max-bytes", "1e6", "--max-rounds", "5", "6"], "give budgets in one unit"),
        (["--max-bytes", "1e6"], "nowhere is not a run"),
        (["--max-bytes", "1e6", "--protocol", "rot13"], "no protocol is called 'rot13'"),
        (["--max-seconds", "5", "--network", "moon"], "moon"),
    ],
)
def test_a_wrong_request_exits_2_and_says_why(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["search", "nowhere", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_what_each_layer_keeps_is_shown_for_each_budget(capsys: pytest.CaptureFixture[str]) -> None:
    price = {"unit": "rounds", "protocol": "aby3", "network": "lan"}
    kept = {"gelu": [0, 9], "softmax": [2, 0]}
    figures = {"price": price, "predicted_cost": 390.0, "measured_cost": 391, "kept": kept}
    show_kept({"budgets": {"rounds-400": figures}})
    shown = capsys.readouterr().out
    assert "rounds-400: 390 rounds predicted under aby3, 391 rounds measured" in shown
    assert "layer 1" in shown


def test_only_a_budget_in_seconds_is_timed_and_then_over_its_network(
    tmp_path, tiny_public, tiny_plan, tiny_weights
):
    public = replace(tiny_public, ranges={})
    save_artifact(tmp_path, public, tiny_plan, tiny_weights)
    price = {"unit": "rounds", "protocol": "semi2k-benchmark", "network": "10,100"}
    counted = measured(tmp_path, price)
    rounds = counted["measured"]["rounds"]
    assert counted["measured_cost"] == rounds
    assert "seconds" not in counted["measured"]
    timed = measured(tmp_path, price | {"unit": "seconds"})
    assert timed["measured"]["measured_on"] == "processes"
    assert timed["measured_cost"] == timed["measured"]["seconds"] > 0.9 * rounds * 0.005
