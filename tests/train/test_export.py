"""Export writes what the student computes, and refuses what the engine cannot hold."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privit.artifact import Artifact, Preprocessing, load_artifact, public_hash
from privit.errors import ArtifactError, PrivitError, RequestError, WorkError
from privit.plan import Plan, uniform_plan
from privit.spec import Granularity, Spec, vit_spec, with_tokens
from privit.train.baselines import random_plan
from privit.train.export import artifact_logits, export_artifact, student_from_artifact
from privit.train.fixed_point.ranges import (
    INVERSE_LIMIT,
    PRODUCT_LIMIT,
    RESERVE,
    check_ranges,
    limit_of,
    measure_ranges,
)
from privit.train.student.vit import Student

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "artifact-v1"
SPEC = vit_spec(8, 4, 8, 2, 2, 3, channels=1)
PREPROCESSING = Preprocessing(8, 1, (0.5,), (0.25,))
NAMES = ("a", "b", "c")


def make_images(count: int = 20) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 1, 8, 8)).astype(np.float32)


def make_student(spec: Spec = SPEC, plan: Plan | None = None, **changes: Any) -> Student:
    torch.manual_seed(0)
    student = Student(spec, plan.granularity if plan else None, **changes)
    if plan is not None:
        student.set_plan(plan)
    for parameter in student.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return student


def export(student: Student, plan: Plan, folder: Path, **changes: Any) -> Artifact:
    arguments = {
        "preprocessing": PREPROCESSING,
        "class_names": NAMES,
        "validation_images": make_images(),
        "notes": {"seed": 0},
    } | changes
    return export_artifact(student, plan, folder=folder, **arguments)


@pytest.mark.parametrize(
    "granularity", [Granularity(), Granularity("element", "head")], ids=["token", "element"]
)
def test_an_artifact_computes_the_students_logits_to_the_bit(
    tmp_path: Path, granularity: Granularity
) -> None:
    stand_in = {"gelu": "quadratic", "softmax": "quadratic_attn"}
    plan = random_plan(SPEC, 0.3, 0.3, granularity=granularity, stand_in=stand_in)
    student = make_student(plan=plan)
    artifact = export(student, plan, tmp_path / "out")
    images = torch.from_numpy(make_images())
    assert torch.equal(student_from_artifact(artifact)(images), student.eval()(images))
    assert artifact.plan.hash() == plan.hash()
    assert artifact.public.notes == {"seed": 0}
    assert any("quadratic" in name for name in artifact.weights or {})


@pytest.mark.parametrize("norm", ["reused_norm", "linear_norm", "fixed_norm"])
def test_an_artifact_with_replaced_norms_and_a_pool_computes_the_students_logits(
    tmp_path: Path, norm: str
) -> None:
    spec = with_tokens(vit_spec(8, 2, 8, 3, 2, 3, channels=1), [17, 5, 5])
    plan = uniform_plan(spec, granularity=Granularity(norm="class"), norm=norm)
    student = make_student(spec, plan)
    for name, parameter in student.named_parameters():
        if name.endswith(("linear_norm.b", "reused_norm.s")):
            # Unfitted, they would let the tokens grow beyond what the engine holds.
            parameter.data *= 1e-3 if name.endswith(".b") else 0.3
    artifact = export(student, plan, tmp_path / "out")
    assert artifact.spec == spec
    assert artifact.weights is not None
    assert {"blocks.1.pool.weight", f"blocks.1.norm.{norm}.{'a' if norm == 'linear_norm' else 's'}"} <= set(
        artifact.weights
    )
    images = torch.from_numpy(make_images())
    assert torch.equal(student_from_artifact(artifact)(images), student.eval()(images))


def test_the_clients_folder_holds_no_weights(tmp_path: Path) -> None:
    plan = random_plan(SPEC, 0.3, 0.3)
    artifact = export(make_student(plan=plan), plan, tmp_path / "out")
    client = load_artifact(tmp_path / "out" / "client")
    assert client.weights is None
    assert public_hash(client.public, client.plan) == public_hash(artifact.public, artifact.plan)
    assert sorted(path.name for path in (tmp_path / "out" / "client").iterdir()) == [
        "manifest.json",
        "plan.safetensors",
        "public.json",
    ]
    with pytest.raises(ArtifactError, match="holds no weights"):
        student_from_artifact(client)


def test_a_student_with_switches_is_exported_as_cut_and_stays_as_it_was(tmp_path: Path) -> None:
    student = make_student()
    plan = random_plan(SPEC, 4, 5)
    artifact = export(student, plan, tmp_path / "out")
    assert sum(artifact.plan.kept("gelu")) == 4
    assert len(student.switches("gelu")) == SPEC.depth
    assert student.training


def test_ranges_are_the_largest_values_on_the_validation_images() -> None:
    plan = random_plan(SPEC, 0.3, 0.3)
    student, images = make_student(plan=plan), make_images()
    ranges = measure_ranges(student, images, batch_size=7)
    seen: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        logits = student(torch.from_numpy(images), lambda name, value: seen.update({name: value}))
    first = "blocks.0."
    expected = {
        first + "score": seen[first + "score"].abs().max(),
        first + "squared_score": seen[first + "score"].square().max(),
        first + "hidden": seen[first + "hidden"].abs().max(),
        first + "norm2.variance_high": seen[first + "residual2"].var(-1, correction=0).max(),
        first + "norm2.variance_low": seen[first + "residual2"].var(-1, correction=0).min(),
        # Only the class token is read behind the last block's attention.
        "blocks.1.hidden": seen["blocks.1.hidden"][:, 0].abs().max(),
        "blocks.1.score": seen["blocks.1.score"][:, :, 0].abs().max(),
        "norm.variance_high": seen["residual"][:, 0].var(-1, correction=0).max(),
        "logits": logits.abs().max(),
    }
    assert {name: ranges[name] for name in expected} == pytest.approx(
        {name: float(value) for name, value in expected.items()}, rel=1e-5
    )
    blocks = [f"blocks.{i}." for i in range(SPEC.depth)]
    assert ranges["score"] == max(ranges[block + "score"] for block in blocks)
    assert ranges["squared_score"] == max(ranges[block + "squared_score"] for block in blocks)
    assert ranges["variance"] == max(ranges[f"{b}norm{n}.variance_high"] for b in blocks for n in "12")
    assert ranges["activation"] >= max(ranges[block + "hidden"] for block in blocks)


def test_score_ranges_look_at_the_rows_that_keep_their_softmax() -> None:
    plan = random_plan(SPEC, 0, 3, seed=1)
    student = make_student(plan=plan)
    ranges = measure_ranges(student, make_images())
    scores: dict[str, torch.Tensor] = {}
    student.eval()
    student(torch.from_numpy(make_images()), lambda name, value: scores.update({name: value.detach()}))
    exact = torch.from_numpy(plan.layers["softmax"][0] == 16)
    rows = scores["blocks.0.score"][:, exact]
    centred = rows - rows.mean(-1, keepdim=True)
    assert exact.any()
    assert ranges["blocks.0.softmax.peak"] == pytest.approx(float(centred.max()), rel=1e-5)
    assert ranges["blocks.0.softmax.drop"] == pytest.approx(-float(centred.min()), rel=1e-5)
    assert ranges["blocks.0.softmax.mean_exp"] == pytest.approx(float(centred.exp().mean(-1).max()), rel=1e-5)
    untouched = measure_ranges(make_student(plan=random_plan(SPEC, 0, 0)), make_images())
    assert not any(".softmax." in name for name in untouched)


@pytest.mark.parametrize("name", ["two_quad", "relu_softmax"])
def test_operators_that_divide_by_a_sum_have_their_denominator_recorded(name: str) -> None:
    exact = {"softmax": name} if name == "relu_softmax" else None
    stand_in = {"softmax": name} if name == "two_quad" else None
    student = make_student(plan=random_plan(SPEC, 0.5, 0.5, exact=exact, stand_in=stand_in))
    ranges = measure_ranges(student, make_images())
    assert ranges["blocks.0.denominator"] > 0


def test_the_limits_are_those_of_64_bits_with_18_fraction_bits() -> None:
    assert PRODUCT_LIMIT == 2**26
    assert INVERSE_LIMIT == 2**17
    assert limit_of("blocks.0.squared_score", SPEC) == PRODUCT_LIMIT
    assert limit_of("blocks.0.norm1.variance_high", SPEC) * SPEC.width == INVERSE_LIMIT
    assert limit_of("blocks.0.denominator", SPEC) == INVERSE_LIMIT


@pytest.mark.parametrize("name", ["blocks.0.squared_score", "blocks.1.norm2.variance_high", "logits"])
def test_ranges_pass_up_to_the_headroom_and_not_beyond(name: str) -> None:
    allowed = limit_of(name, SPEC) / RESERVE
    check_ranges({name: allowed}, SPEC)
    for value in (allowed * 1.01, float("nan"), float("inf")):
        with pytest.raises(RequestError, match=f"{name} reaches"):
            check_ranges({name: value}, SPEC)


def test_a_model_whose_squared_scores_do_not_fit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    plan = random_plan(SPEC, 0.3, 0.3)
    student = make_student(plan=plan)
    student.get_parameter("blocks.0.qkv.weight").data *= 1000
    with pytest.raises(
        RequestError, match=r"blocks\.0\.squared_score reaches .*, at most 1\.678e\+07 is allowed"
    ):
        export(student, plan, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_artifact_is_replaced_as_a_whole(tmp_path: Path) -> None:
    first, second = random_plan(SPEC, 3, 3, seed=0), random_plan(SPEC, 3, 3, seed=1)
    export(make_student(plan=first), first, tmp_path / "out")
    export(make_student(plan=second), second, tmp_path / "out")
    assert load_artifact(tmp_path / "out").plan.hash() == second.hash()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    plan = random_plan(SPEC, 3, 3)
    with pytest.raises(RequestError, match="holds other things than an artifact"):
        export(make_student(plan=plan), plan, tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("name", ["server/thesis.tex", "client/key.pem", "server/more/a.txt"])
def test_a_file_beside_those_that_the_manifest_lists_is_left_alone(tmp_path: Path, name: str) -> None:
    first, second = random_plan(SPEC, 3, 3, seed=0), random_plan(SPEC, 3, 3, seed=1)
    out = tmp_path / "out"
    export(make_student(plan=first), first, out)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("years of work")
    foreign = "/".join(name.split("/")[:2])
    with pytest.raises(RequestError, match=f"holds other things than an artifact: .*{foreign}"):
        export(make_student(plan=second), second, out)
    assert (out / name).read_text() == "years of work"
    assert load_artifact(out).plan.hash() == first.hash()


def test_a_folder_called_server_that_no_export_wrote_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out" / "server").mkdir(parents=True)
    (tmp_path / "out" / "server" / "public.json").write_text("{}")
    plan = random_plan(SPEC, 3, 3)
    with pytest.raises(RequestError, match=r"holds other things than an artifact: .*public\.json"):
        export(make_student(plan=plan), plan, tmp_path / "out")


def test_a_disk_without_room_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    plan = random_plan(SPEC, 3, 3)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(WorkError, match=r"could not be written to .*: File too large\nhint: free some"):
            export(make_student(plan=plan), plan, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = random_plan(SPEC, 3, 3)
    with pytest.raises(WorkError, match="could not be written"):
        export(make_student(plan=plan), plan, tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": ("a", "b")}, "2 class names are given, but the model has 3 classes"),
        ({"preprocessing": Preprocessing(16, 1, (0.5,), (0.5,))}, "preprocessing makes images of shape"),
        ({"validation_images": make_images(0)}, "validation images have shape"),
        ({"validation_images": np.zeros((2, 3, 8, 8), np.float32)}, "validation images have shape"),
    ],
)
def test_a_request_that_does_not_fit_the_model_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    plan = random_plan(SPEC, 3, 3)
    with pytest.raises(PrivitError, match=message):
        export(make_student(plan=plan), plan, tmp_path / "out", **changes)
    assert os.listdir(tmp_path) == []


def test_the_artifact_of_format_version_1_still_loads_with_the_same_hash_and_logits() -> None:
    expected = json.loads((GOLDEN / "expected.json").read_text())
    for side in ("server", "client"):
        artifact = load_artifact(GOLDEN / side)
        assert public_hash(artifact.public, artifact.plan) == expected["public_hash"]
        assert artifact.plan.hash() == expected["plan_hash"]
    student = student_from_artifact(load_artifact(GOLDEN))
    image = torch.linspace(-1, 1, SPEC.image_size**2).reshape(1, 1, SPEC.image_size, SPEC.image_size)
    np.testing.assert_allclose(student(image)[0].detach().numpy(), expected["logits"], atol=1e-5)


def test_an_artifact_answers_in_torch_as_its_student_does() -> None:
    artifact = load_artifact(GOLDEN)
    size, channels = artifact.spec.image_size, artifact.spec.channels
    pixels = np.random.default_rng(0).normal(size=(2, channels, size, size)).astype(np.float32)
    with torch.no_grad():
        expected = student_from_artifact(artifact)(torch.from_numpy(pixels)).numpy()
    assert np.array_equal(artifact_logits(artifact, pixels), expected)
