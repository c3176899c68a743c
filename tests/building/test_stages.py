"""The stages of a build: what they hand on, and what is done where an exported program costs too much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import MODEL, tiny_teacher

from privit.artifact import Artifact, Public
from privit.building.foresee import Foreseen, cost_of, foresee, prices, search_settings
from privit.building.request import Request
from privit.building.stages import make_student, overspent, teacher_ranges
from privit.config import check_config
from privit.errors import BudgetError, RequestError
from privit.runs import load_run
from privit.spec import KINDS
from privit.train.stages import read_model


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a tiny teacher on digits."""
    return tiny_teacher(tmp_path_factory.mktemp("teacher"))


def asked(teacher: Path, out: Path, **more: object) -> tuple[Request, Foreseen]:
    request = Request(MODEL, "digits", out, {}, protocol="semi2k-benchmark", teacher=teacher, epochs=1)
    request = replace(request, **more)  # type: ignore[arg-type]
    return request, foresee(request)


def cost(request: Request, run: Path) -> float:
    """What the plan of a run is predicted to cost in the request's unit, guard included."""
    model, (price,) = read_model(load_run(run)), prices(request)
    ranges = teacher_ranges(request.teacher or run, 0)
    return cost_of(model.plan, model.subject.spec, price, ranges, guard=True)


def test_a_share_of_sites_keeps_so_many_and_replaces_norms(teacher: Path, tmp_path: Path) -> None:
    request, foreseen = asked(teacher, tmp_path / "out", keep=0.5)
    student = make_student(request, foreseen, teacher, teacher_ranges(teacher, 0), print)
    plan = read_model(load_run(student.run)).plan
    assert [sum(plan.kept(kind)) for kind in KINDS] == [5, 10, 2]


def test_the_guard_is_paid_from_the_budget_and_a_student_that_costs_too_much_is_made_for_less(
    teacher: Path, tmp_path: Path
) -> None:
    request, foreseen = asked(teacher, tmp_path / "out", most={"rounds": 150.0})
    ranges = teacher_ranges(teacher, 0)
    first = make_student(request, foreseen, teacher, ranges, print)
    assert cost(request, first.run) <= 150
    assert load_run(tmp_path / "out" / "choice").description["config"]["budgets"][0]["cost"] < 150
    second = make_student(request, foreseen, teacher, ranges, print, over=1.2)
    assert first.run != second.run
    assert cost(request, second.run) < cost(request, first.run) / 1.1


def test_what_an_artifact_takes_of_its_budget_is_the_fullest_of_all(teacher: Path, tmp_path: Path) -> None:
    model = read_model(load_run(teacher))
    subject = model.subject
    public = Public(subject.spec, subject.preprocessing, subject.class_names, teacher_ranges(teacher, 0))
    artifact = Artifact(public, model.plan, None)
    request, _ = asked(teacher, tmp_path, most={"rounds": 1e4, "bytes": 1e6})
    shares = [
        cost_of(model.plan, subject.spec, price, public.ranges, guard=False) / request.most[price.unit]
        for price in prices(request)
    ]
    assert overspent(request, artifact) == pytest.approx(max(shares))
    assert max(shares) > min(shares)
    assert overspent(replace(request, most={}, keep=0.1), artifact) == 0


def test_a_budget_between_the_best_case_and_this_teacher_s_floor_is_refused_before_a_choice(
    teacher: Path, tmp_path: Path
) -> None:
    request, foreseen = asked(teacher, tmp_path / "out", most={"rounds": 1e4})
    low = replace(request, most={"rounds": 40.0})
    with pytest.raises(BudgetError, match="nothing below that is possible"):
        make_student(low, foreseen, teacher, teacher_ranges(teacher, 0), print)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("changes", [{"data": "cifar10"}, {"model": "vit:width=8"}])
def test_a_teacher_of_something_else_is_refused(
    teacher: Path, tmp_path: Path, changes: dict[str, str]
) -> None:
    with pytest.raises(RequestError, match="is a teacher of"):
        asked(teacher, tmp_path, keep=0.1, **changes)


@pytest.mark.parametrize("name", ["paper", "plain", "digits"])
def test_a_preset_s_own_search_takes_the_same_budgets(tmp_path: Path, name: str) -> None:
    request = Request(MODEL, "digits", tmp_path, {"bytes": 1e6, "seconds": 2.0}, keep=0.1, preset=name)
    for each in (request, replace(request, most={}), replace(request, keep=None)):
        config = search_settings(each)
        check_config(config)
        assert set(config.kinds) == {"gelu", "softmax"}
