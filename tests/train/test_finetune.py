"""Fine-tuning keeps the plan, takes one of several cuts, and hands over to the export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import FINETUNE, SEARCH

from privit.artifact import load_artifact
from privit.cost.budgets.budget import keep
from privit.errors import RequestError
from privit.plan import load_plan, uniform_plan
from privit.runs import load_run
from privit.train.finetune import export, finetune
from privit.train.search import search


@pytest.fixture(scope="module")
def search_run(teacher_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search") / "run"
    search(teacher_run, folder, replace(SEARCH, budgets=(keep(0.5, "half"), keep(0.2, "fifth"))))
    return folder


def test_fine_tuning_trains_the_weights_and_leaves_the_plan(search_run: Path, tmp_path: Path) -> None:
    result = finetune(search_run, tmp_path / "run", FINETUNE)
    before, after = (load_plan(run / "plan.safetensors") for run in (search_run, tmp_path / "run"))
    assert after.hash() == before.hash() == result["plan"]
    assert result["kept_gelu"] == 2
    records = load_run(tmp_path / "run").metrics()
    assert records[-1]["loss"] < records[0]["loss"]
    assert records[-1]["distillation"] > 0
    assert finetune(search_run, tmp_path / "run", FINETUNE) == result


def test_a_cut_is_chosen_by_its_budgets_name(search_run: Path, tmp_path: Path) -> None:
    config = replace(FINETUNE, epochs=1, distill=False, swap={"gelu": "relu"})
    result = finetune(search_run, tmp_path / "run", config, budget="half")
    assert (result["kept_gelu"], result["kept_softmax"]) == (5, 10)
    plan = load_plan(tmp_path / "run" / "plan.safetensors")
    names = {entry.name for i in range(2) for entry in plan.operators("gelu", i)}
    assert "relu" in names
    assert "gelu" not in names
    assert load_run(tmp_path / "run").metrics()[0]["distillation"] == 0
    with pytest.raises(RequestError, match=r"no budget 'third'\nhint: it has fifth, half"):
        finetune(search_run, tmp_path / "other", FINETUNE, budget="third")


def test_a_plan_that_no_search_made_starts_from_the_teacher(teacher_run: Path, tmp_path: Path) -> None:
    from privit.train.stages import read_model

    spec = read_model(load_run(teacher_run)).subject.spec
    plan = uniform_plan(spec, gelu="quadratic", softmax="quadratic_attn")
    result = finetune(teacher_run, tmp_path / "run", replace(FINETUNE, epochs=1), plan=plan)
    assert result["kept_gelu"] == result["kept_softmax"] == 0
    with pytest.raises(RequestError, match="is a teacher run"):
        finetune(teacher_run, tmp_path / "other", FINETUNE)


def test_the_export_of_a_run_holds_its_weights_and_where_it_came_from(
    search_run: Path, tmp_path: Path
) -> None:
    finetune(search_run, tmp_path / "run", replace(FINETUNE, epochs=1))
    artifact = export(tmp_path / "run", tmp_path / "out")
    assert artifact.public.notes["data"] == "digits"
    assert artifact.public.notes["run"] == load_run(tmp_path / "run").identity
    assert load_artifact(tmp_path / "out" / "client").weights is None
    from privit.runs import read_arrays

    weights = read_arrays(tmp_path / "run" / "weights.safetensors")
    assert artifact.weights is not None
    assert all(np.array_equal(artifact.weights[name], weights[name]) for name in artifact.weights)
