"""Learning from the teacher's tokens: what the error measures, and that a fine-tuning lowers it."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import FINETUNE
from torch import Tensor

from privit.config import FinetuneConfig, check_config
from privit.errors import RequestError
from privit.plan import uniform_plan
from privit.runs import load_run
from privit.spec import Spec, vit_spec, with_tokens
from privit.train.finetune import finetune
from privit.train.loop.hidden import hidden_error, hidden_states
from privit.train.stages import read_model
from privit.train.student.vit import Student
from privit.train.training_free import fit_run

SPEC = vit_spec(image_size=8, patch_size=2, width=8, depth=3, heads=2, classes=3)
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def student_of(spec: Spec) -> Student:
    """An exact student, with the same weights whatever pools it has."""
    whole = Student(SPEC)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.normal_(std=0.5, generator=generator)
    student = Student(spec)
    student.set_plan(uniform_plan(spec))
    student.load_weights(whole.weights())
    return student.eval()


def error(student: Student, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    return float(hidden_error(student, ours, theirs).detach())


def test_a_model_is_at_no_distance_from_itself() -> None:
    student = student_of(SPEC)
    logits, states = hidden_states(student, IMAGES)
    assert list(states) == [*(f"blocks.{i}.residual1" for i in range(3)), "residual"]
    torch.testing.assert_close(logits, student(IMAGES))
    assert error(student, states, states) == 0


def test_a_token_counts_by_its_own_deviation_and_the_class_token_as_much_as_all_patches() -> None:
    student = student_of(SPEC)
    _, theirs = hidden_states(student, IMAGES)
    off = {name: value + value.std(dim=-1, correction=0, keepdim=True) for name, value in theirs.items()}
    assert error(student, off, theirs) == pytest.approx(log(2), rel=1e-4)
    large = {name: 100 * value for name, value in theirs.items()}
    assert error(student, {n: 100 * v for n, v in off.items()}, large) == pytest.approx(log(2), rel=1e-4)
    for tokens in (slice(0, 1), slice(1, None)):
        part = {name: value.clone() for name, value in theirs.items()}
        for name, value in part.items():
            value[:, tokens] = off[name][:, tokens]
        assert error(student, part, theirs) == pytest.approx(log(2) / 2, rel=1e-4)


def test_behind_a_pool_the_teachers_tokens_are_pooled_alike() -> None:
    pooled = student_of(with_tokens(SPEC, (17, 5, 2)))
    _, theirs = hidden_states(student_of(SPEC), IMAGES)
    _, ours = hidden_states(pooled, IMAGES)
    assert [value.shape[1] for value in ours.values()] == [17, 5, 2, 2]
    # Nothing has come between them up to the first pool, whose own matrix makes the teacher's tokens these.
    first = {name: theirs[name] for name in ("blocks.0.residual1", "blocks.1.residual1")}
    assert error(pooled, ours, first) == pytest.approx(0, abs=1e-8)
    assert error(pooled, ours, theirs) > 1e-3


def test_what_is_learned_leads_into_the_student_alone() -> None:
    teacher, student = student_of(SPEC), student_of(with_tokens(SPEC, (17, 5, 5)))
    theirs, ours = hidden_states(teacher, IMAGES)[1], hidden_states(student, IMAGES)[1]
    hidden_error(student, ours, {name: value.detach() for name, value in theirs.items()}).backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert float(student.patch.weight.grad.abs().sum()) > 0  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def fitted(teacher_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hidden") / "fit"
    fit_run(teacher_run, folder)
    return folder


def trained(fitted: Path, out: Path, **settings: Any) -> list[dict[str, Any]]:
    finetune(fitted, out, replace(FINETUNE, **settings))
    return load_run(out, "finetune").metrics()


def test_a_fine_tuning_stays_nearer_to_the_teachers_tokens(
    teacher_run: Path, fitted: Path, tmp_path: Path
) -> None:
    near, plain = (trained(fitted, tmp_path / str(w), hidden=w, epochs=6) for w in (100.0, 0.0))
    parts = sum(near[0][name] for name in ("cross_entropy", "distillation"))
    assert near[0]["loss"] == pytest.approx(parts + 100 * near[0]["hidden_states"], rel=1e-3)
    assert len(plain) == len(near)
    images = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    _, theirs = hidden_states(read_model(load_run(teacher_run)).student().eval(), images)
    found = []
    for weight in (100.0, 0.0):
        student = read_model(load_run(tmp_path / str(weight))).student().eval()
        found.append(error(student, hidden_states(student, images)[1], theirs))
    assert found[0] < found[1] / 2


def test_without_it_a_run_is_what_it_was_before(fitted: Path, tmp_path: Path) -> None:
    (record,) = trained(fitted, tmp_path / "plain", epochs=1)
    assert "hidden_states" not in record
    assert "hidden" not in load_run(tmp_path / "plain").description["config"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"hidden": -1.0}, "below zero"), ({"hidden": 1.0, "distill": False}, "nothing is learned from the")],
)
def test_weights_that_make_no_sense_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        check_config(FinetuneConfig(**settings))
