"""Finished models are asked: several budgets at once, filled plans, agreement, private queries, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_recipe import SETTING, unguarded, write_recipe

from privit.artifact import load_artifact
from privit.errors import RequestError
from privit.operators import BY_NAME, UNTOUCHED
from privit.plan import load_plan
from privit.report import write_report
from privit.spec import PAPER_KINDS
from privit.sweep.recipe.recipe import read_recipe
from privit.sweep.run.runner import run_sweep
from privit.sweep.run.tasks import Grid
from privit.train.descent.fill import filled_plan

PRICED = SETTING.replace('["aby3"]', '["semi2k-benchmark", "aby3"]')
STUDENTS = f"""
title = "every feature"
{PRICED}
[methods.capped]
base = "fitted"
label = "by rounds and bytes"
student = "5-capped"

[methods.filled]
base = "fitted"
label = "by rounds and bytes, filled"
student = "5-filled"
fill = {{ gelu = 0.8, softmax = 0.8 }}

[methods.none]
base = "uniform"
label = "none exact"
student = "0-paper"

[[experiments]]
name = "several"
shows = ["table"]
methods = ["capped", "filled"]
max_rounds = [230]
max_bytes = [2e6]
protocol = "semi2k-benchmark"
"""
ASKED = """
[[experiments]]
name = "asked"
title = "Every student"
shows = ["students", "measured"]
bench = ["semi2k-benchmark"]
against = ["dense"]
agreement = { images = 2, protocols = ["semi2k-benchmark"] }
private = { images = 1, protocols = ["aby3"] }
methods = ["none", "dense"]
budgets = [{ name = "0", gelu = 0, softmax = 0 }]
"""


def cells(out: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(out.glob("cells/*/*/*/*/cell.json"))]
    return {cell["student"]: cell for cell in found}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    result = run_sweep(read_recipe(write_recipe(folder, ASKED, STUDENTS)), folder / "out")
    assert result["failed"] == []
    return folder / "out"


@pytest.mark.slow
def test_students_have_the_names_that_their_methods_give_them(asked: Path) -> None:
    assert set(cells(asked)) == {"5-capped", "5-filled", "0-paper", "dense"}
    assert cells(asked)["5-capped"]["student_label"] == "by rounds and bytes"


@pytest.mark.slow
def test_a_plan_keeps_to_every_budget_that_it_is_given(asked: Path) -> None:
    capped = cells(asked)["5-capped"]
    assert capped["budget"]["asked"] == {"rounds": 230, "bytes": 2e6}
    spent = unguarded(asked, capped)
    assert spent["rounds"] <= 1.02 * 230
    assert spent["sent_bytes"] <= 1.02 * 2e6
    assert capped["budget"]["predicted_cost"] <= 230


@pytest.mark.slow
def test_a_filled_plan_is_the_capped_one_with_sites_added_up_to_the_budget(asked: Path) -> None:
    found = cells(asked)
    assert found["5-filled"]["search"] == found["5-capped"]["search"]
    before, after = (
        load_plan(asked / found[n]["run"] / "plan.safetensors") for n in ("5-capped", "5-filled")
    )
    for kind in PAPER_KINDS:
        assert sum(before.kept(kind)) < sum(after.kept(kind)) == int(0.8 * after.total(kind))
        for old, new in zip(before.layers[kind], after.layers[kind], strict=True):
            # What was exact stays exact, and nothing else becomes a stand-in of another kind.
            assert set(np.unique(new[old != new])) <= {BY_NAME[UNTOUCHED[kind]].id}


@pytest.mark.slow
def test_sites_are_added_to_one_layer_until_it_is_full(asked: Path) -> None:
    cell = cells(asked)["5-capped"]
    before = load_plan(asked / cell["run"] / "plan.safetensors")
    for kind in PAPER_KINDS:
        kept, total = before.kept(kind), before.total(kind)
        room = [ids.size - count for ids, count in zip(before.layers[kind], kept, strict=True)]
        for more in (0, 1, max(room), sum(room)):
            sites = {kind: sum(kept) + more}
            after = filled_plan(asked / cell["search"], cell["budget"]["name"], sites)
            grown = [new - old for new, old in zip(after.kept(kind), kept, strict=True)]
            assert sum(grown) == more <= total
            # A layer that grew was filled, but for the last of them.
            assert sum(0 < g < r for g, r in zip(grown, room, strict=True)) <= 1
            other = next(k for k in PAPER_KINDS if k != kind)
            assert after.kept(other) == before.kept(other)


@pytest.mark.slow
def test_every_student_that_is_served_says_under_mpc_what_it_says_in_the_clear(asked: Path) -> None:
    dense, student = cells(asked)["dense"], cells(asked)["0-paper"]
    for cell in (dense, student):
        assert cell["measured"]["semi2k-benchmark"]["against"]["dense"]["rounds"] > 0
    # Nobody serves the model as commonly written.
    assert dense["agreement"] == dense["private"] == {}
    agreement, private = student["agreement"]["semi2k-benchmark"], student["private"]["aby3"]
    assert (agreement["images"], private["images"]) == (2, 1)
    assert agreement["agreement"] == private["agreement"] == 1.0
    assert agreement["folded"]["agree"] == 2
    assert private["measured_on"] == "processes"


@pytest.mark.slow
def test_an_answer_is_kept_as_it_is_finished(asked: Path, tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, ASKED, STUDENTS))
    assert run_sweep(recipe, asked)["stages_run"] == 0
    (stage, *_) = sorted(asked.glob("stages/agreement-*"))
    kept = (stage / "images.jsonl").read_text()
    result = json.loads((stage / "result.json").read_text())
    (stage / "result.json").unlink()
    assert run_sweep(recipe, asked)["stages_run"] == 1
    # Images that were asked before are not asked again.
    assert (stage / "images.jsonl").read_text() == kept
    assert json.loads((stage / "result.json").read_text())["seconds"] == result["seconds"]


@pytest.mark.slow
def test_a_student_whose_export_is_refused_is_costed_by_its_program_and_not_asked(tmp_path: Path) -> None:
    # Steps so large that weights, and with them values, grow beyond what the engine holds.
    wild = '[methods.wild]\nbase = "uniform"\nfinetune = { learning_rate = 3.0, gradient_clip = 1e9 }\n'
    recipe = write_recipe(tmp_path, ASKED.replace('["none", "dense"]', '["wild"]'), PRICED + wild)
    assert run_sweep(read_recipe(recipe), tmp_path / "out")["failed"] == []
    cell = cells(tmp_path / "out")["0-wild"]
    assert cell["artifact"] is None
    assert "do not fit the engine" in cell["artifact_problem"]
    assert load_artifact(tmp_path / "out" / cell["program"]).weights is None
    assert cell["cost"]["with_ranges"]
    predicted = cell["cost"]["spu"]["semi2k-benchmark"]["lan"]
    for name in ("rounds", "sent_bytes"):
        assert cell["measured"]["semi2k-benchmark"][name] == pytest.approx(predicted[name], rel=0.02)
    assert cell["agreement"]["semi2k-benchmark"]["refused"] == cell["artifact_problem"]
    assert "agreement" not in cell["private"]["aby3"]
    write_report(tmp_path / "out", tmp_path / "report", protocol="semi2k-benchmark")
    # Among offers it has no place.
    assert not (tmp_path / "report" / "figures" / "asked-accuracy-cost.png").exists()


@pytest.mark.slow
def test_a_report_shows_every_student(asked: Path, tmp_path: Path) -> None:
    write_report(asked, tmp_path, protocol="semi2k-benchmark")
    text = (tmp_path / "report.md").read_text()
    for words in ("by rounds and bytes, filled", "none exact", "2 of 2", "1 of 1", "rounds, of dense"):
        assert words in text, words
    assert (tmp_path / "figures" / "asked-accuracy-cost.png").is_file()
    table = (tmp_path / "tables" / "asked-private.csv").read_text()
    assert "0-paper,none exact,aby3,1," in table


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("images = 2", "images = 0", "agreement: images is 0, but at least 1 was expected"),
        (
            '["aby3"] }',
            '["semi2k-benchmark"] }',
            "semi2k-benchmark, which is not private; put it into agreement",
        ),
        ('images = 1, protocols = ["aby3"]', "images = 1", "private: no protocols are given"),
        ('["dense"]\nagreement', '["sparse"]\nagreement', "against has 'sparse'"),
        ('bench = ["semi2k-benchmark"]', 'bench = ["semi2k-benchmark/moon"]', "'moon'"),
        (
            'networks = ["lan"]',
            'networks = ["lan"]\nexport = false',
            "private asks artifacts, but [cost] export is false",
        ),
        ("fill = { gelu = 0.8,", "fill = { relu = 0.8,", "fill has relu = 0.8"),
        ("max_bytes = [2e6]", "max_bytes = [2e6, 1e6]", "max_bytes beside max_rounds should be one amount"),
        ("max_bytes = [2e6]", "max_bytes = [1e3]", "the budget is 0.001 MB, but all cheap costs"),
        ("max_bytes = [2e6]", "keep = [0.5, 0.1]", "beside a budget in cost, one in sites caps every plan"),
        ("max_bytes = [2e6]", 'names = ["a", "b"]', "2 names for 1 budgets"),
        (
            'name = "0", gelu = 0, softmax = 0 }',
            'name = "0", gelu = 0, softmax = 0 }, { gelu = 1, softmax = 1 }',
            "put {budget} into it",
        ),
        (
            'base = "uniform"',
            'base = "uniform"\nfill = { gelu = 0.5 }',
            "fill adds sites to a plan found under a cost",
        ),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_starts(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    whole = STUDENTS + ASKED
    assert old in whole
    with pytest.raises(RequestError) as caught:
        read_recipe(write_recipe(tmp_path, "", whole.replace(old, new)))
    assert words in caught.value.message


def test_only_the_budgets_that_are_named_become_models_of_a_shared_descent(tmp_path: Path) -> None:
    text = '[[experiments]]\nname = "a"\n'
    for method, only in (("privit-g", ""), ("privit-r", 'only = ["keep-0.1"]\n')):
        text += f'[[experiments.fronts]]\nmethods = ["{method}"]\nkeep = [0.5, 0.1]\n{only}'
    grid = Grid(read_recipe(write_recipe(tmp_path, text)))
    assert sum(task.stage == "search" for task in grid.tasks.values()) == 1
    assert [(c.method.name, c.budget.name) for c in grid.cells] == [
        ("privit-g", "keep-0.5"),
        ("privit-g", "keep-0.1"),
        ("privit-r", "keep-0.1"),
    ]
    with pytest.raises(RequestError, match=r"only has 'keep-0.2', but the budgets are keep-0.5, keep-0.1"):
        read_recipe(write_recipe(tmp_path, text.replace('["keep-0.1"]', '["keep-0.2"]')))
