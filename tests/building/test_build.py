"""A build ends with an artifact within its budget, and with the same one whatever interrupted it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from privit.artifact import load_artifact
from privit.building.check import fingerprint
from privit.cli import main
from privit.runs import Run, read_json

MODEL = "vit:image_size=8,patch=4,width=8,depth=1,heads=2,channels=1"
DATA = ["--data", "digits", "--train-limit", "512", "--protocol", "semi2k-benchmark"]
SHORT = ["--teacher-epochs", "6", "--epochs", "12"]
MOST = 100
ROUNDS = ["--max-rounds", str(MOST)]
PATIENCE_SECONDS = 240


def command(out: Path, *more: str) -> list[str]:
    return ["build", MODEL, *DATA, *SHORT, "--out", str(out), "--json", *more]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished build, nothing left out."""
    out = tmp_path_factory.mktemp("built") / "out"
    assert main(command(out, *ROUNDS)) == 0
    return out


def artifact_of(out: Path) -> str:
    return fingerprint(load_artifact(out / "artifact"))


def test_a_build_keeps_its_budget_and_says_what_it_measured(built: Path) -> None:
    result = read_json(built / "build.json")
    written, rewritten, student = result["models"]
    assert student["predicted"]["rounds"] <= MOST
    assert not result["over_budget"]
    for row in (written, rewritten, student):
        for figure in ("sent_bytes", "rounds"):
            assert row["measured"][figure] == pytest.approx(row["predicted"][figure], rel=0.05)
    assert student["predicted"]["rounds"] < rewritten["predicted"]["rounds"] < written["predicted"]["rounds"]
    assert result["check"]["images"] == 20
    assert student["measured"]["class_name"] == student["measured"]["in_the_clear"]
    assert "teacher, as commonly written" in (built / "report.md").read_text()


def test_every_stage_is_an_ordinary_run(built: Path) -> None:
    stages = {name: Run(built / name, read_json(built / name / "config.json")).stage for name in STAGES}
    assert stages == {"teacher": "teacher", "choice": "search", "finetune": "finetune"}


STAGES = ("teacher", "choice", "finetune")


@pytest.mark.parametrize("left", ["choice", "artifact"])
def test_a_build_that_was_stopped_in_a_stage_ends_with_the_same_artifact(
    built: Path, tmp_path: Path, left: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(built, out, ignore=shutil.ignore_patterns("check", "build.json", "report.md"))
    # What a stage writes last is gone, and all that comes after it.
    later = [*STAGES, "artifact"][[*STAGES, "artifact"].index(left) + 1 :]
    for name in later:
        shutil.rmtree(out / name)
    (out / "artifact.json").unlink()
    if left == "artifact":
        shutil.rmtree(out / "artifact" / "client")
    else:
        (out / left / "result.json").unlink()
    assert main(command(out, *ROUNDS, "--no-check")) == 0
    assert artifact_of(out) == artifact_of(built)


def test_a_build_killed_while_it_trains_ends_with_the_same_artifact(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = command(out, *ROUNDS, "--no-check", "--teacher", str(built / "teacher"))
    process = subprocess.Popen(
        [sys.executable, "-m", "privit", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        metrics, end = out / "finetune" / "metrics.jsonl", time.monotonic() + PATIENCE_SECONDS
        while not (metrics.is_file() and len(metrics.read_text().splitlines()) >= 2):
            assert process.poll() is None, "the kill came too late to show anything"
            assert time.monotonic() < end
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (out / "finetune" / "result.json").exists(), "the kill came too late to show anything"
    assert main(arguments) == 0
    assert artifact_of(out) == artifact_of(built)


def test_the_same_command_again_does_nothing_anew(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in built.rglob("*.safetensors")}
    capsys.readouterr()
    assert main(command(built, *ROUNDS)) == 0
    assert {path: path.stat().st_mtime_ns for path in built.rglob("*.safetensors")} == before
    said = capsys.readouterr()
    assert json.loads(said.out) == read_json(built / "build.json")
    # Before anything long: what is done, how long it takes here, and what budgets are possible.
    assert "teacher: 6 epochs of 512 images, about" in said.err
    assert "rounds: nothing below" in said.err


@pytest.fixture(scope="module")
def accurate(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A build for an accuracy that any student of this little teacher has."""
    out = tmp_path_factory.mktemp("accurate") / "out"
    arguments = [*command(out, "--no-check", "--teacher", str(built / "teacher")), "--max-loss", "60"]
    assert main(arguments) == 0
    return out, read_json(out / "build.json")


def test_an_accuracy_takes_the_cheapest_plan_that_has_it(accurate: tuple[Path, dict[str, Any]]) -> None:
    out, result = accurate
    assert result["points_below_validation"] <= 60
    costs = [entry["predicted_seconds"] for entry in result["tries"] if entry["points_below"] <= 60]
    chosen = next(t for t in result["tries"] if str(out / "tries" / t["budget"]) == result["student"])
    assert chosen["predicted_seconds"] == min(costs)
    assert {path.name for path in (out / "tries").iterdir()} == {t["budget"] for t in result["tries"]}


def test_an_accuracy_that_no_plan_has_is_refused_with_the_nearest_and_nothing_is_lost(
    accurate: tuple[Path, dict[str, Any]], built: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(accurate[0], out)
    # A teacher that is always right, which no student of it can equal.
    teacher = tmp_path / "teacher"
    shutil.copytree(built / "teacher", teacher)
    result = read_json(teacher / "result.json") | {"validation_accuracy": 1.0}
    (teacher / "result.json").write_text(json.dumps(result))
    tries = {path.name for path in (out / "tries").iterdir()}
    arguments = command(out, "--no-check", "--teacher", str(teacher), "--max-loss", "0.01")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "no plan within the budgets ends at most 0.01 points below its teacher: the nearest is" in said
    assert tries <= {path.name for path in (out / "tries").iterdir()}


def folder_of(root: Path, *classes: str) -> str:
    for name in classes:
        (root / name).mkdir(parents=True)
        for shade in range(8):
            Image.new("L", (8, 8), 20 * shade).save(root / name / f"{shade}.png")
    return str(root)


@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        (MODEL, [], "no budget was given"),
        (MODEL, ["--max-rounds", "100", "200"], "a build makes one model"),
        (MODEL, ["--max-rounds", "3"], "nothing below that is possible for this model"),
        (MODEL, ["--max-bytes", "1e9", "--max-rounds", "3"], "nothing below that is possible"),
        ("timm:resnet18", ["--max-rounds", "100"], "resnet18"),
        ("vit:width=7,heads=2", ["--max-rounds", "100"], "a fresh model needs image_size, patch, depth"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_written(
    model: str, more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", model, *DATA, "--out", str(tmp_path / "out"), *more]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_data_of_one_class_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = folder_of(tmp_path / "data", "cat")
    assert main(["build", MODEL, "--data", data, "--out", str(tmp_path / "out"), *ROUNDS]) == 2
    assert "class" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
