"""MPCFormer's first stage brings the student's inner values to the teacher's; fine-tuning goes on from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import FINETUNE

from privit.data.datasets import preprocess_split
from privit.errors import RequestError
from privit.plan import uniform_plan
from privit.runs import load_run
from privit.train.baselines import match
from privit.train.baselines.matching import inner_errors
from privit.train.finetune import finetune
from privit.train.stages import Model, read_model


@pytest.fixture(scope="module")
def matched(teacher_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that matched 2Quad and Quad to the tiny teacher."""
    folder = tmp_path_factory.mktemp("matching") / "run"
    spec = read_model(load_run(teacher_run)).subject.spec
    match(teacher_run, folder, uniform_plan(spec, "quad", "two_quad"), replace(FINETUNE, epochs=3))
    return folder


def errors_on_validation(model: Model, teacher: Model) -> list[float]:
    """All, hidden states, scores."""
    data = model.subject.load()
    images = torch.from_numpy(preprocess_split(data.validation, model.subject.preprocessing))
    with torch.no_grad():
        return inner_errors(model.student(), teacher.student(), images).tolist()


def test_matching_lowers_both_errors_on_images_it_did_not_see(teacher_run: Path, matched: Path) -> None:
    teacher, after = read_model(load_run(teacher_run)), read_model(load_run(matched))
    before = Model(teacher.subject, after.plan, teacher.weights)
    start, end = errors_on_validation(before, teacher), errors_on_validation(after, teacher)
    for first, last in zip(start, end, strict=True):
        assert last < 0.5 * first
    assert end[0] == pytest.approx(end[1] + end[2])


def test_the_loss_of_every_epoch_is_written_down(matched: Path) -> None:
    run = load_run(matched, "matching")
    losses = [record["loss"] for record in run.metrics()]
    result = run.result()
    assert result is not None
    assert losses[0] > losses[-1]
    assert (result["first_loss"], result["last_loss"]) == (losses[0], losses[-1])
    assert "cross_entropy" not in run.metrics()[0]


def test_the_teacher_matches_itself(teacher_run: Path) -> None:
    teacher = read_model(load_run(teacher_run))
    assert errors_on_validation(teacher, teacher)[0] == pytest.approx(0, abs=1e-9)


def test_fine_tuning_goes_on_from_the_matched_weights(
    teacher_run: Path, matched: Path, tmp_path: Path
) -> None:
    finetune(matched, tmp_path / "run", replace(FINETUNE, epochs=1, learning_rate=1e-9, weight_decay=0.0))
    before, after = read_model(load_run(matched)), read_model(load_run(tmp_path / "run"))
    assert after.plan.hash() == before.plan.hash()
    for name, weight in before.weights.items():
        assert abs(after.weights[name] - weight).max() < 1e-6


def test_a_search_is_not_a_teacher_to_match(matched: Path, tmp_path: Path) -> None:
    plan = read_model(load_run(matched)).plan
    with pytest.raises(RequestError, match="is a matching run, but a teacher run is needed"):
        match(matched, tmp_path / "run", plan)
