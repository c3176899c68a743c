"""Budgets in cost in recipes: who can take them, which are possible, and what a sweep makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_recipe import SETTING, unguarded, write_recipe

from privit.config import from_json
from privit.cost.budgets.price import Price
from privit.errors import RequestError
from privit.presets import DIGITS, PRESETS
from privit.sweep.methods import METHODS
from privit.sweep.recipe.cost_budgets import floor, priced_stages
from privit.sweep.recipe.recipe import Recipe, read_recipe
from privit.sweep.run.runner import run_sweep
from privit.sweep.run.tasks import Grid

PRICED = SETTING.replace('["aby3"]', '["semi2k-benchmark"]')
FRONT = 'protocol = "semi2k-benchmark"\n'


def experiment(methods: list[str], text: str) -> str:
    return f'[[experiments]]\nname = "priced"\nmethods = {json.dumps(methods)}\n{text}\n'


def problems(folder: Path, text: str, setting: str = PRICED) -> str:
    with pytest.raises(RequestError) as caught:
        read_recipe(write_recipe(folder, text, setting))
    return caught.value.message


def small(folder: Path, text: str) -> Recipe:
    return read_recipe(write_recipe(folder, text, PRICED))


@pytest.mark.parametrize(
    ("front", "words"),
    [
        ("max_rounds = [200]\nmax_bytes = [1e6, 2e6]", "max_bytes beside max_rounds should be one amount"),
        ("max_rounds = [200]\nkeep = [0.1, 0.2]", "one in sites caps every plan; write two fronts"),
        ('max_rounds = [200]\nnames = ["../up"]', "cannot be a folder's"),
        ("keep = [0.1]", "protocol is given, but no budget in cost such as max_seconds"),
        ("max_rounds = []", "no budget is given"),
        ("max_rounds = [-1]", "is -1, not above zero"),
        ("max_rounds = [inf]", "is inf, not a finite number"),
        ("max_rounds = [nan]", "is nan, not a finite number"),
        ('max_rounds = ["many"]', "is 'many', not a number"),
        ('max_seconds = [1]\nnetwork = "moon"', "'moon'"),
        ('max_seconds = [1]\nnetwork = "wan"', "[cost] networks lacks wan, on which budgets are given"),
    ],
)
def test_what_is_wrong_with_a_budget_in_cost_is_said(tmp_path: Path, front: str, words: str) -> None:
    assert words in problems(tmp_path, experiment(["privit-g"], front + "\n" + FRONT))


def test_the_first_unit_is_the_budget_and_the_others_are_caps_as_for_a_search(tmp_path: Path) -> None:
    text = "max_bytes = [3e6, 2e6]\nmax_rounds = [230]\nkeep = [0.5]\n" + FRONT
    (front,) = small(tmp_path, experiment(["fitted"], text)).experiments[0].fronts
    assert front.price == Price("bytes", "semi2k-benchmark")
    assert [budget.cost for budget in front.budgets] == [3e6, 2e6]
    for budget in front.budgets:
        assert budget.caps == {"rounds": 230}
        assert budget.sites == {"gelu": 0.5, "softmax": 0.5}
    assert front.budgets[0].name == "bytes-3000000-rounds-230-keep-0.5"


def test_plans_that_are_made_from_one_amount_take_no_caps(tmp_path: Path) -> None:
    text = experiment(["uniform"], "max_rounds = [230]\nmax_bytes = [2e6]\n" + FRONT)
    assert "uniform: cannot be given a budget in cost: its plans have one measure alone" in problems(
        tmp_path, text
    )


def test_a_protocol_that_nothing_is_estimated_for_is_a_problem(tmp_path: Path) -> None:
    text = experiment(["privit-g"], "max_rounds = [300]")
    assert "[cost] protocols lacks cheetah" in problems(tmp_path, text)


def test_methods_that_cannot_take_a_cost_and_budgets_below_the_floor_come_at_once(tmp_path: Path) -> None:
    methods = ["mpcvit", "privit-scratch", "privit-fitted", "snl", "dense"]
    found = problems(tmp_path, experiment(methods, "max_rounds = [230, 150, 100]\n" + FRONT))
    assert "has 5 problems" in found
    assert "has 5 problems" in found
    assert "mpcvit: cannot be given a budget in cost: its exact operator is relu_softmax" in found
    assert "privit-scratch: cannot be given a budget in cost: it starts from random weights" in found
    assert "privit-fitted: the budget is 100 rounds, but all cheap costs 113 rounds" in found
    # With every softmax exact the cheapest plan costs more.
    assert "snl: the budget is 150 rounds, but all cheap costs 171 rounds" in found
    assert "snl: the budget is 100 rounds" in found


def test_one_method_with_budgets_in_two_units_would_be_one_line(tmp_path: Path) -> None:
    text = '[[experiments]]\nname = "a"\n[[experiments.fronts]]\nmethods = ["privit-g"]\nkeep = [0.5]\n'
    text += f'[[experiments.fronts]]\nmethods = ["privit-g"]\nmax_rounds = [230]\n{FRONT}'
    assert "privit-g has budgets in different units" in problems(tmp_path, text)
    named = text[::-1].replace('"g-tivirp"', '"tsoc-tivirp"', 1)[::-1]
    assert small(tmp_path, '[methods.privit-cost]\nbase = "privit-g"\n' + named).experiments


def test_no_teacher_has_a_lower_floor_than_the_one_that_is_checked(tmp_path: Path) -> None:
    spec = small(tmp_path, experiment(["privit-g"], "keep = [0.5]")).experiments[0].setting.spec
    assert spec is not None
    price, method = Price("rounds", "semi2k-benchmark"), METHODS["privit-fitted"]
    search = priced_stages(method.settings(DIGITS), price).search
    lowest = floor(method, search, price, spec)
    from privit.cost.budgets.pricing import Pricer
    from privit.plan import uniform_plan

    plan = uniform_plan(spec, gelu="affine", softmax="static_attn")
    for low, high in ((1e-3, 1e3), (0.5, 2.0), (1.0, 1.0)):
        norms = [f"blocks.{i}.norm{n}" for i in range(2) for n in (1, 2)] + ["norm"]
        ranges = {f"{n}.variance_low": low for n in norms} | {f"{n}.variance_high": high for n in norms}
        assert Pricer(spec, price, ranges).cost(plan) >= lowest


def test_one_descent_gives_all_budgets_of_a_front_the_largest_first(tmp_path: Path) -> None:
    methods = ["privit-fitted", "privit-r", "fitted", "training-free", "uniform"]
    grid = Grid(small(tmp_path, experiment(methods, "max_rounds = [195, 230]\n" + FRONT)))
    searches = [task.settings for task in grid.tasks.values() if task.stage == "search"]
    # Both methods without training have the same one.
    assert len(searches) == 3
    for settings in searches:
        assert [b["name"] for b in settings["config"]["budgets"]] == ["rounds-230", "rounds-195"]
        assert settings["config"]["price"]["unit"] == "rounds"
    trained, swapped, untrained = (settings["config"] for settings in searches)
    assert trained["free"] == untrained["free"] == {"gelu": "affine", "softmax": "static_attn"}
    # ReLU is priced as ReLU: swapped behind the search it would leave a part of the budget.
    assert swapped["exact"]["gelu"] == "relu"
    assert len(grid.cells) == 10
    assert sum(task.stage == "finetune" for task in grid.tasks.values()) == 8


def test_budgets_in_sites_are_planned_as_if_there_were_no_others(tmp_path: Path) -> None:
    stages = METHODS["privit-r"].settings(PRESETS["digits"])
    assert priced_stages(stages, None) is stages
    recipe = small(tmp_path, experiment(["training-free", "random"], "keep = [0.5]"))
    (search,) = [task for task in Grid(recipe).tasks.values() if task.stage == "search"]
    assert search.settings["config"]["price"] is None
    assert search.settings["training"] is False


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path, dict[str, Any]]:
    """A sweep with a budget that only the trained teacher shows to be impossible."""
    folder = tmp_path_factory.mktemp("priced")
    text = '[[experiments]]\nname = "priced"\n'
    fronts = {"privit-fitted": "[230, 195, 120]", "training-free": "[230, 195]", "uniform": "[230]"}
    for method, budgets in fronts.items():
        text += f'[[experiments.fronts]]\nmethods = ["{method}"]\nmax_rounds = {budgets}\n{FRONT}'
    recipe = small(folder, text)
    return recipe, folder / "out", run_sweep(recipe, folder / "out")


def cell(out: Path, method: str, budget: str) -> dict[str, Any]:
    return dict(json.loads((out / "cells/priced" / method / budget / "seed-0/cell.json").read_text()))


def test_every_cell_is_within_its_budget(priced: tuple[Recipe, Path, dict[str, Any]]) -> None:
    _, out, _ = priced
    for method in ("privit-fitted", "training-free"):
        for rounds in (230, 195):
            found = cell(out, method, f"rounds-{rounds}")
            budget = found["budget"]
            assert budget["asked"] == {"rounds": rounds}
            assert budget["price"] == {"unit": "rounds", "protocol": "semi2k-benchmark", "network": "lan"}
            assert 0.8 * rounds < budget["predicted_cost"] <= rounds
            assert budget["sites"] == {kind: sum(kept) for kind, kept in found["kept"].items()}
    made = cell(out, "uniform", "rounds-230")
    assert made["budget"]["predicted_cost"] is None
    assert unguarded(out, made)["rounds"] <= 230
    assert 230 < made["cost"]["spu"]["semi2k-benchmark"]["lan"]["rounds"] <= 230 + 20, "with its guard"


def test_a_method_without_training_has_its_own_model_for_each_budget(
    priced: tuple[Recipe, Path, dict[str, Any]],
) -> None:
    large, small = (cell(priced[1], "training-free", f"rounds-{n}") for n in (230, 195))
    assert large["run"] == small["run"] == large["search"]
    assert large["plan"] != small["plan"]
    assert large["artifact"] != small["artifact"]
    assert large["epochs"] == {"teacher": 1, "search": 0}


def test_a_budget_that_this_teacher_refuses_stops_no_other(
    priced: tuple[Recipe, Path, dict[str, Any]],
) -> None:
    recipe, out, result = priced
    (failed,) = result["failed"]
    assert failed["cell"] == "cells/priced/privit-fitted/rounds-120/seed-0"
    assert re.search(r"the budget is 120 rounds, but all cheap costs \d+ rounds", failed["error"])
    # The same command tries that one again, and nothing else.
    again = run_sweep(recipe, out)
    assert (again["stages_run"], again["failed"]) == (1, result["failed"])


def test_the_index_says_in_what_budgets_are_given(priced: tuple[Recipe, Path, dict[str, Any]]) -> None:
    (entry,) = json.loads((priced[1] / "sweep.json").read_text())["recipes"].values()
    assert entry["experiments"][0]["prices"] == [
        {"unit": "rounds", "protocol": "semi2k-benchmark", "network": "lan"}
    ]
    settings = entry["settings"]["search"]
    assert from_json(type(DIGITS.search), settings).price is None
