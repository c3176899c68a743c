"""`privit fit` with counts per layer: a printed plan with a teacher's weights, up to its artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privit.artifact import Artifact, load_artifact
from privit.cli import main
from privit.operators import FITTED
from privit.plan import plan_from_counts, uniform_plan
from privit.runs import load_run
from privit.train.stages import read_model

COUNTS = ["--kept-gelu-tokens", "3,1", "--kept-softmax-rows", "4,7"]


def fit(teacher_run: Path, out: Path, *arguments: str) -> int:
    return main(["fit", str(teacher_run), "--out", str(out), "--images", "32", *arguments])


def exported(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Artifact, dict[str, Any]]:
    """The artifact of a run, and what the export says of it."""
    capsys.readouterr()
    assert main(["export", str(run), "--out", str(run.parent / "out"), "--json"]) == 0
    return load_artifact(run.parent / "out"), json.loads(capsys.readouterr().out)


def test_the_artifact_has_the_counted_plan_and_ranges_of_real_images(
    teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(teacher_run, tmp_path / "fit", *COUNTS, "--kept-norms", "2,1", "--seed", "5") == 0
    artifact, said = exported(tmp_path / "fit", capsys)
    spec = artifact.public.spec
    plan = plan_from_counts(spec, [3, 1], [4, 7], seed=5, stand_in=FITTED, norms=[2, 1])
    assert artifact.plan.hash() == plan.hash()
    assert (said["kept_gelu"], said["kept_softmax"], said["kept_norm"]) == (4, 11, 4)
    assert artifact.public.ranges


def test_counts_that_are_not_given_keep_nothing_but_norms(
    teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(teacher_run, tmp_path / "fit", "--kept-gelu-tokens", "2", "--softmax", "linear_attn") == 0
    artifact, _ = exported(tmp_path / "fit", capsys)
    assert [artifact.plan.kept(kind) for kind in ("gelu", "softmax", "norm")] == [[2, 2], [0, 0], [2, 3]]
    assert [each.name for each in artifact.plan.operators("softmax", 0)] == ["linear_attn"]


def test_without_counts_every_gelu_and_softmax_is_replaced(teacher_run: Path, tmp_path: Path) -> None:
    assert fit(teacher_run, tmp_path / "fit") == 0
    run = load_run(tmp_path / "fit")
    model = read_model(run)
    assert model.plan.hash() == uniform_plan(model.subject.spec, FITTED["gelu"], FITTED["softmax"]).hash()
    assert "kept" not in run.description["config"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kept-gelu-tokens", "1,2,3"], "3 gelu counts given, but the model has 2 layers"),
        (["--kept-gelu-tokens", "6,0"], "layer 0 is asked to keep 6 gelu sites, but it has 5"),
        (["--kept-softmax-rows", "11"], "layer 0 is asked to keep 11 softmax sites, but it has 10"),
        (["--kept-norms", "2,3"], "layer 1 is asked to keep 3 LayerNorms, but a block has 2"),
        (["--kept-norms", "0,2"], "the first LayerNorm is to be reused"),
        (["--kept-norms", "few"], "'few' is not a list of counts"),
        (["--kept-softmax-rows", ""], "'' is not a list of counts"),
    ],
)
def test_counts_that_cannot_be_are_refused_as_cost_refuses_them(
    teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert fit(teacher_run, tmp_path / "fit", *arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "fit").exists()
