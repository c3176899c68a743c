"""Budgets in cost on the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privit.artifact import save_artifact
from privit.cli import main
from privit.cli.budgeting import FITTED, measured, show_kept, with_choices, with_cost_budgets
from privit.config import SearchConfig, check_config
from privit.cost.budgets.price import Price


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
    assert (fitted.stand_in, fitted.free) == (FITTED, {"gelu": "affine", "softmax": "static_attn"})
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
        (["--gelu-budget", "1.5"], "the gelu budget is 1.5, neither a share nor a whole number of sites"),
        (["--softmax-budget", "-1"], "the softmax budget is -1, below zero"),
        (["--gelu-budget", "1.5", "--max-bytes", "1e6"], "neither a share nor a whole number of sites"),
        (["--keep", "2"], "--keep is 2, but a share of the sites from 0 to 1 was expected"),
        (["--keep", "2", "--max-bytes", "1e6"], "--keep is 2, but a share"),
        (["--keep", "nan"], "--keep is nan, but a share"),
        (
            ["--set", "granularity={gelu='pixel'}"],
            "gelu is 'pixel', but token, element or layer was expected",
        ),
    ],
)
def test_a_wrong_request_exits_2_and_says_why(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["search", "nowhere", *arguments]) == 2
    assert words in capsys.readouterr().err


BUDGETS = (
    "--gelu-budget",
    "--softmax-budget",
    "--max-seconds",
    "--max-bytes",
    "--max-rounds",
    "--max-relu-ops",
)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("flag", BUDGETS)
@pytest.mark.parametrize("more", [[], ["--no-training"], ["--max-bytes", "5"], ["--fitted"]])
def test_what_is_no_finite_number_is_no_budget(
    capsys: pytest.CaptureFixture[str], flag: str, value: str, more: list[str]
) -> None:
    if flag in more:
        more = ["--max-rounds", "5"]
    assert main(["search", "nowhere", f"{flag}={value}", *more]) == 2
    said = capsys.readouterr().err
    assert "the configuration has 1 problem" in said
    assert value in said


@pytest.mark.parametrize("flag", BUDGETS)
def test_a_budget_of_three_hundred_digits_is_a_budget(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert main(["search", "nowhere", flag, "1e300"]) == 2
    assert "nowhere is not a run" in capsys.readouterr().err


def test_an_enormous_amount_can_be_a_folders_name() -> None:
    config = with_cost_budgets(SearchConfig(), {"bytes": (1e300, 1e15)}, "cheetah", "lan")
    assert [budget.name for budget in config.budgets] == ["bytes-1e300", "bytes-1000000000000000"]
    check_config(config)


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
