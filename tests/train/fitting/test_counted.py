"""A fit that keeps counted sites: their plan, what stands elsewhere, and what is no such plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privit.cost.budgets.budget import Budget
from privit.data.datasets import preprocess_split
from privit.errors import BudgetError, RequestError
from privit.operators import FITTED, operator
from privit.plan import Plan, plan_from_counts
from privit.runs import load_run
from privit.spec import KINDS, PAPER_KINDS, Granularity
from privit.train.fitting.fit import FitConfig, fit, fit_images
from privit.train.stages import Model, planned_student, read_model
from privit.train.training_free import NOTHING, TrainingFreeConfig, fit_run, search_without_training

FIT = FitConfig(images=64, batch_size=32, seed=3)
COUNTS: dict[str, tuple[int, ...]] = {"gelu": (3, 1), "softmax": (4, 7), "norm": (1, 0)}
NORMS_TOO = Budget(NOTHING.sites | {"norm": 0})


def fitted(teacher_run: Path, folder: Path, **settings: Any) -> tuple[Model, dict[str, Any]]:
    """The model of a fit and its result."""
    result = fit_run(teacher_run, folder, TrainingFreeConfig(**({"fit": FIT} | settings)))
    return read_model(load_run(folder, "search")), result


def printed(teacher_run: Path, seed: int = FIT.seed) -> Plan:
    """The plan that COUNTS stand for."""
    spec = read_model(load_run(teacher_run)).subject.spec
    gelu, softmax, norm = (list(COUNTS[kind]) for kind in KINDS)
    return plan_from_counts(spec, gelu, softmax, seed, stand_in=FITTED, norms=norm)


def operators(plan: Plan, kind: str) -> set[str]:
    """The names of all operators of a kind."""
    return {each.name for layer in range(len(plan.layers[kind])) for each in plan.operators(kind, layer)}


@pytest.fixture(scope="module")
def counted(teacher_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counted") / "run"
    fitted(teacher_run, folder, kept=COUNTS)
    return folder


def test_the_sites_that_stay_are_those_of_a_plan_by_the_same_counts_and_seed(
    counted: Path, teacher_run: Path
) -> None:
    run = load_run(counted, "search")
    assert read_model(run).plan.hash() == printed(teacher_run).hash() != printed(teacher_run, seed=0).hash()
    result = run.result()
    assert result is not None
    # The model's final LayerNorm is exact beside those that are counted.
    assert result["kept"] == {"gelu": [3, 1], "softmax": [4, 7], "norm": [1, 1]}
    assert result["budget"] == {"gelu": 4, "softmax": 11, "norm": 2}


def test_what_does_not_stay_is_fitted_to_the_teacher_beside_what_does(
    counted: Path, teacher_run: Path
) -> None:
    teacher, found = read_model(load_run(teacher_run)), read_model(load_run(counted))
    data = teacher.subject.load()
    pixels = preprocess_split(data.train, teacher.subject.preprocessing, fit_images(len(data.train), FIT))
    plan = printed(teacher_run)
    unfitted = planned_student(teacher.subject.spec, plan, teacher.weights)
    initial = unfitted.weights()
    expected = fit(unfitted, pixels, FIT, teacher.student()).weights()
    assert found.weights.keys() == expected.keys()
    assert all(np.array_equal(found.weights[name], value) for name, value in expected.items())
    stand_ins = expected.keys() - teacher.weights.keys()
    assert {name.split(".")[2] for name in stand_ins} == set(KINDS)
    assert any(not np.array_equal(initial[name], expected[name]) for name in stand_ins)


def test_a_fit_that_keeps_every_site_is_the_teacher(teacher_run: Path, tmp_path: Path) -> None:
    found, result = fitted(teacher_run, tmp_path / "fit", kept={"gelu": (5,), "softmax": (10,), "norm": (2,)})
    teacher = read_model(load_run(teacher_run))
    assert found.plan.hash() == teacher.plan.hash()
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(16, 1, 8, 8)).astype(np.float32))
    with torch.no_grad():
        torch.testing.assert_close(found.student().eval()(images), teacher.student().eval()(images))
    assert result["budgets"]["final"]["validation_accuracy"] == result["validation_accuracy"]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_without_counts_are_as_in_a_fit_without_any(
    kind: str, teacher_run: Path, tmp_path: Path
) -> None:
    found, _ = fitted(teacher_run, tmp_path / "one", kept={kind: COUNTS[kind]})
    without, _ = fitted(teacher_run, tmp_path / "none")
    expected = printed(teacher_run)
    for each in KINDS:
        plan = expected if each == kind else without.plan
        for ours, theirs in zip(found.plan.layers[each], plan.layers[each], strict=True):
            assert np.array_equal(ours, theirs), each
    assert [sum(without.plan.kept(each)) for each in KINDS] == [0, 0, 5]


@pytest.mark.parametrize("norm", ["reused_norm", "fixed_norm"])
def test_norms_without_counts_are_all_replaced_where_they_are_to_be(
    norm: str, teacher_run: Path, tmp_path: Path
) -> None:
    settings = {"budgets": (NORMS_TOO,), "stand_in": FITTED | {"norm": norm}}
    found, result = fitted(teacher_run, tmp_path / "fit", kept={"gelu": (2, 0)}, **settings)
    assert found.plan.kept("gelu") == [2, 0]
    # The final LayerNorm too; the first one stays where it has nothing to reuse.
    assert sum(found.plan.kept("norm")) == (norm == "reused_norm")
    assert result["budget"] == {"gelu": 2, "softmax": 0, "norm": 0}


def test_counted_norms_have_the_stand_in_that_was_asked_for(teacher_run: Path, tmp_path: Path) -> None:
    settings = {"budgets": (NORMS_TOO,), "stand_in": FITTED | {"norm": "linear_norm"}}
    found, _ = fitted(teacher_run, tmp_path / "fit", kept={"norm": (2, 1)}, **settings)
    assert found.plan.kept("norm") == [2, 2]
    assert operators(found.plan, "norm") == {"layer_norm", "linear_norm"}


def test_counts_are_of_the_tokens_that_are_left(teacher_run: Path, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="layer 1 is asked to keep 4 gelu sites, but it has 3"):
        fitted(teacher_run, tmp_path / "fit", tokens=(5, 3), kept={"gelu": (4,)})
    found, _ = fitted(teacher_run, tmp_path / "fit", tokens=(5, 3), kept={"gelu": (4, 3)})
    assert found.plan.kept("gelu") == [4, 3]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"gelu": (1, 2, 3)}, "3 gelu counts given, but the model has 2 layers"),
        ({"softmax": (1, 11)}, "layer 1 is asked to keep 11 softmax sites, but it has 10"),
        ({"gelu": (-1,)}, "layer 0 is asked to keep -1 gelu sites, but it has 5"),
        ({"norm": (2, 3)}, "layer 1 is asked to keep 3 LayerNorms, but a block has 2"),
        ({"norm": (0, 2)}, "the first LayerNorm is to be reused"),
    ],
)
def test_counts_that_do_not_fit_the_model_leave_no_folder(
    teacher_run: Path, tmp_path: Path, kept: dict[str, tuple[int, ...]], said: str
) -> None:
    with pytest.raises(BudgetError, match=said):
        fitted(teacher_run, tmp_path / "fit", kept=kept)
    assert not (tmp_path / "fit").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kept": {"relu": (1,)}}, "sites of relu are counted, but there are gelu, softmax, norm"),
        (
            {"kept": {"gelu": (1,)}, "granularity": Granularity("element")},
            "sites of gelu are counted by token, but switched by element",
        ),
        ({"kept": {"gelu": (1,)}, "budgets": (Budget({"gelu": 3, "softmax": 0}),)}, "but budgets are given"),
    ],
)
def test_counts_that_could_not_be_kept_to_are_refused(
    teacher_run: Path, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        search_without_training(teacher_run, tmp_path / "fit", TrainingFreeConfig(**settings))


def test_kinds_without_counts_may_be_switched_in_any_way(teacher_run: Path, tmp_path: Path) -> None:
    coarse = Granularity(softmax="layer")
    found, _ = fitted(teacher_run, tmp_path / "fit", kept={"gelu": (1, 2)}, granularity=coarse)
    assert [found.plan.kept(kind) for kind in PAPER_KINDS] == [[1, 2], [0, 0]]
    assert found.plan.granularity == coarse


def test_a_fit_without_counts_is_the_run_it_was_before_there_were_any(
    teacher_run: Path, tmp_path: Path
) -> None:
    _, result = fitted(teacher_run, tmp_path / "fit")
    assert "kept" not in load_run(tmp_path / "fit").description["config"]
    again = fitted(teacher_run, tmp_path / "fit", kept={})[1]
    assert again == result
    with pytest.raises(RequestError, match="kept is None there, "):
        fitted(teacher_run, tmp_path / "fit", kept={"gelu": (1, 1)})


def test_a_fit_goes_on_with_the_same_counts_alone(counted: Path, teacher_run: Path) -> None:
    assert fitted(teacher_run, counted, kept=COUNTS)[1] == load_run(counted).result()
    for other in ({}, COUNTS | {"norm": (2, 0)}):
        with pytest.raises(RequestError, match=r"kept is .* there, .* here"):
            fitted(teacher_run, counted, kept=other)


def test_one_count_is_every_layers(teacher_run: Path, tmp_path: Path) -> None:
    _, result = fitted(teacher_run, tmp_path / "fit", kept={"gelu": (2,)})
    assert result["kept"]["gelu"] == [2, 2]
    assert fitted(teacher_run, tmp_path / "fit", kept={"gelu": (2, 2)})[1] == result


def test_another_seed_puts_the_sites_elsewhere(teacher_run: Path, tmp_path: Path) -> None:
    plans = [
        fitted(teacher_run, tmp_path / str(seed), kept=COUNTS, fit=replace(FIT, seed=seed))[0].plan
        for seed in (0, 1)
    ]
    assert [plan.hash() for plan in plans] == [printed(teacher_run, seed).hash() for seed in (0, 1)]
    assert plans[0].hash() != plans[1].hash()
    assert (plans[0].layers["softmax"][0][:, 0] == operator("softmax").id).all()
