"""A residual stream is scaled until the engine can hold it, and the model stays the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from privit.artifact import Preprocessing
from privit.errors import RequestError
from privit.plan import Plan, plan_from_ids, uniform_plan
from privit.program.ranges import WATCHED_MARGINS
from privit.serve.measure.bench import bench
from privit.spec import Granularity, Spec, vit_spec, with_tokens
from privit.train.baselines import random_plan
from privit.train.export import artifact_logits, export_artifact
from privit.train.fixed_point.ranges import RESERVE, check_ranges, limit_of, measure_ranges, nearest_limit
from privit.train.fixed_point.stream import LEAST_VARIANCE, fitting_scale, scaled_stream
from privit.train.student.vit import Student

SPEC = vit_spec(8, 4, 16, 3, 2, 3, channels=1)
FITTED = {"gelu": "quadratic", "softmax": "quadratic_attn"}


def make_student(spec: Spec, plan: Plan) -> Student:
    torch.manual_seed(0)
    student = Student(spec, plan.granularity)
    student.set_plan(plan)
    for parameter in student.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return student.eval()


def make_images(count: int = 20) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 1, 8, 8)).astype(np.float32)


def logits(student: Student) -> np.ndarray:
    with torch.no_grad():
        return student(torch.from_numpy(make_images())).numpy()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("granularity", [Granularity(), Granularity("element", "head")])
def test_a_scaled_stream_gives_the_same_logits(pooling: str, granularity: Granularity) -> None:
    spec = vit_spec(8, 4, 16, 3, 2, 3, channels=1, pooling=pooling)
    student = make_student(spec, random_plan(spec, 0.3, 0.3, granularity=granularity, stand_in=FITTED))
    for scale in (0.5, 0.125, 64.0):
        scaled = scaled_stream(student, scale)
        np.testing.assert_allclose(logits(scaled), logits(student), rtol=1e-5, atol=1e-6)
        found = measure_ranges(scaled, make_images())["blocks.2.norm1.variance_high"]
        assert found == pytest.approx(
            scale**2 * measure_ranges(student, make_images())["blocks.2.norm1.variance_high"], rel=1e-5
        )


@pytest.mark.parametrize("norm", ["reused_norm", "linear_norm", "fixed_norm"])
@pytest.mark.parametrize("granularity", [Granularity(), Granularity(norm="class")], ids=["layer", "class"])
def test_a_scaled_stream_gives_the_same_logits_whatever_stands_at_the_norms(
    norm: str, granularity: Granularity
) -> None:
    spec = with_tokens(vit_spec(8, 2, 16, 3, 2, 3, channels=1), [17, 17, 5])
    student = make_student(spec, uniform_plan(spec, granularity=granularity, norm=norm))
    for scale in (0.5, 64.0):
        np.testing.assert_allclose(logits(scaled_stream(student, scale)), logits(student), rtol=1e-4)


def test_a_model_without_any_variance_is_not_scaled() -> None:
    student = make_student(SPEC, uniform_plan(SPEC, norm="fixed_norm"))
    ranges = measure_ranges(student, make_images())
    assert not any("variance_" in name for name in ranges)
    assert fitting_scale(ranges, SPEC) == 1
    check_ranges(ranges, SPEC)


def test_only_norms_that_compute_a_variance_have_a_range() -> None:
    layers = {kind: list(ids) for kind, ids in uniform_plan(SPEC, norm="reused_norm").layers.items()}
    layers["norm"][1] = np.array([34, 35])
    student = make_student(SPEC, plan_from_ids(Granularity(), layers))
    ranges = measure_ranges(student, make_images())
    found = {name.removesuffix(".variance_high") for name in ranges if name.endswith(".variance_high")}
    assert found == {"blocks.0.norm1", "blocks.1.norm1"}


def test_the_scale_is_the_largest_power_of_two_that_fits() -> None:
    allowed = limit_of("blocks.0.norm1.variance_high", SPEC) / RESERVE

    def scale(low: float, high: float) -> float:
        ranges = {"norm.variance_low": 1.0, "norm.variance_high": 1.0}
        ranges |= {"blocks.1.norm2.variance_low": low, "blocks.1.norm2.variance_high": high}
        return fitting_scale(ranges, SPEC)

    assert scale(1.0, allowed) == 1
    assert scale(1.0, 1.01 * allowed) == 0.5
    assert scale(1.0, 4 * allowed) == 0.5
    assert scale(1.0, 4.01 * allowed) == 0.25
    assert scale(4 * LEAST_VARIANCE, 4 * allowed) == 0.5
    assert scale(3.9 * LEAST_VARIANCE, 4 * allowed) == 1
    assert scale(1.0, float("inf")) == scale(1.0, float("nan")) == scale(float("nan"), allowed) == 1


def test_a_model_whose_stream_is_too_large_is_exported_scaled(tmp_path: Path) -> None:
    plan = random_plan(SPEC, 0.3, 0.3, stand_in=FITTED)
    student = make_student(SPEC, plan)
    large = scaled_stream(student, 64.0)
    with pytest.raises(RequestError, match="variance_high reaches"):
        check_ranges(measure_ranges(large, make_images()), SPEC)
    preprocessing = Preprocessing(8, 1, (0.5,), (0.25,))
    artifact = export_artifact(large, plan, preprocessing, ("a", "b", "c"), make_images(), tmp_path / "out")
    scale = artifact.public.notes["stream_scale"]
    assert scale < 1
    assert artifact.spec.norm_eps == pytest.approx(SPEC.norm_eps * (64 * scale) ** 2)
    np.testing.assert_allclose(
        artifact_logits(artifact, make_images()), logits(student), rtol=1e-5, atol=1e-6
    )


def test_a_scaled_model_is_right_under_sharing_and_the_unscaled_one_is_not(tmp_path: Path) -> None:
    plan = random_plan(SPEC, 0.3, 0.3, stand_in=FITTED)
    large = scaled_stream(make_student(SPEC, plan), 1024.0)
    preprocessing = Preprocessing(8, 1, (0.5,), (0.25,))
    artifact = export_artifact(large, plan, preprocessing, ("a", "b", "c"), make_images(), tmp_path / "out")
    unscaled = replace(
        artifact,
        public=replace(artifact.public, spec=large.spec, ranges=measure_ranges(large, make_images())),
        weights=large.weights(),
    )
    assert bench(artifact, "semi2k-benchmark")["max_logit_error"] < 0.02
    assert bench(unscaled, "semi2k-benchmark")["max_logit_error"] > 0.2


def test_a_stream_that_fits_is_left_as_it_is(tmp_path: Path) -> None:
    plan = random_plan(SPEC, 0.3, 0.3)
    student = make_student(SPEC, plan)
    preprocessing = Preprocessing(8, 1, (0.5,), (0.25,))
    artifact = export_artifact(student, plan, preprocessing, ("a", "b", "c"), make_images(), tmp_path / "out")
    assert artifact.spec == SPEC
    assert "stream_scale" not in artifact.public.notes


def test_the_value_nearest_to_its_limit_is_not_the_largest_one() -> None:
    # A row's mean exponential has no limit: the layer then runs the engine's own softmax.
    ranges = {"blocks.0.softmax.mean_exp": 8.8e9, "blocks.0.score": 1e6, "blocks.0.norm1.variance_high": 4e3}
    nearest = nearest_limit(ranges, vit_spec(8, 4, 16, 1, 2, classes=3))
    assert nearest.place == "blocks.0.norm1.variance_high"
    assert str(nearest) == "blocks.0.norm1.variance_high reaches 4000, at most 2048 is allowed"


def test_an_artifact_has_narrow_margins_only_once_it_has_a_guard(tmp_path: Path) -> None:
    plan = random_plan(SPEC, 0.3, 0.3, stand_in=FITTED)
    student, preprocessing = make_student(SPEC, plan), Preprocessing(8, 1, (0.5,), (0.25,))
    artifact = export_artifact(student, plan, preprocessing, ("a", "b", "c"), make_images(), tmp_path / "out")
    assert not artifact.public.guard
    assert not artifact.public.ranges.keys() & WATCHED_MARGINS.keys()
    assert measure_ranges(student, make_images()).keys() >= WATCHED_MARGINS.keys()
