"""What is found in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_files import write_line, write_run
from sweep_files import SPEC, SweepFiles, cost_of

from privit.errors import RequestError
from privit.report.read.cells import points
from privit.report.read.gather import gather

FAST = "semi2k-benchmark"


def test_a_folder_of_runs_gives_teachers_and_students_over_seeds(tmp_path):
    for seed, accuracy in ((0, 0.95), (1, 0.93)):
        write_line(tmp_path / f"seed-{seed}", seed, accuracy)
    found = gather(tmp_path, FAST)
    assert [(p.first.label, p.seeds) for p in points(found.cells)] == [
        ("PriViT-G", [0, 1]),
        ("teacher", [0, 1]),
    ]
    student = points(found.cells)[0]
    assert student.accuracy.mean == pytest.approx(0.94)
    assert student.first.teacher_accuracy == 0.97
    assert student.first.costs["relu_ops"] == cost_of((4, 8))["relu_ops"]
    assert student.first.costs["sent_bytes"] == cost_of((4, 8))["spu"][FAST]["lan"]["sent_bytes"]
    assert sum(student.first.kept["gelu"]) == 4
    assert len(student.first.layer_rounds) == SPEC.depth + 2


def test_folders_that_somebody_named_are_methods(tmp_path):
    write_run(tmp_path / "teacher", "teacher", 0.97)
    write_run(tmp_path / "random", "finetune", 0.9, (4, 8))
    write_run(tmp_path / "finetune", "finetune", 0.92, (4, 8), swap={"gelu": "relu"})
    assert [cell.label for cell in gather(tmp_path, FAST).cells] == ["PriViT-R", "random", "teacher"]


def test_a_student_that_was_chosen_without_training_is_not_called_privit(tmp_path):
    write_run(tmp_path / "choice", "search", 0.9, (4, 8), training=False)
    student = write_run(tmp_path / "finetune", "finetune", 0.92, (4, 8))
    description = student.description | {"notes": {"search": "../choice"}}
    (tmp_path / "finetune" / "config.json").write_text(json.dumps(description))
    assert [cell.label for cell in gather(tmp_path, FAST).cells] == ["fitted, chosen without training"]


def test_a_search_is_shown_where_nothing_was_made_from_it(tmp_path):
    write_run(tmp_path / "search", "search", 0.9, (4, 8))
    assert [cell.label for cell in gather(tmp_path, FAST).cells] == ["PriViT before fine-tuning"]


def test_unfinished_and_broken_runs_are_listed_and_stop_nothing(tmp_path):
    write_line(tmp_path / "good", 0, 0.95)
    write_run(tmp_path / "half", "finetune", None)
    write_run(tmp_path / "torn", "finetune", 0.9)
    (tmp_path / "torn" / "plan.safetensors").write_bytes(b"nonsense")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text("{")
    found = gather(tmp_path, FAST)
    assert len(found.cells) == 2
    assert {missing.name for missing in found.missing} == {"half", "torn", "odd"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "is not a folder"),
        (lambda path: path.mkdir(), "holds no finished run"),
        (lambda path: write_run(path / "half", "teacher", None), "1 unfinished or unreadable"),
    ],
)
def test_a_folder_without_results_is_refused(tmp_path, make, words):
    make(tmp_path / "runs")
    with pytest.raises(RequestError, match=words):
        gather(tmp_path / "runs", FAST)


def test_a_sweep_gives_its_experiments_cells_and_what_failed(small):
    found = gather(small, FAST)
    assert [experiment.name for experiment in found.experiments] == ["pareto"]
    assert found.experiments[0].paper == "fig: pareto curve c10/100"
    assert found.experiments[0].methods["SNL"] == "What SNL does."
    assert [(m.name, m.reason) for m in found.missing] == [
        ("pareto: mpcvit-plus, 4-8, seed 0", "the loss became NaN")
    ]
    assert {cell.label for cell in found.cells} == {
        "PriViT-G",
        "PriViT-R",
        "MPCViT",
        "SNL",
        "MPCFormer",
        "dense",
    }
    first = found.cells[0]
    assert first.costs["seconds_wan"] == cost_of((4, 8))["spu"][FAST]["wan"]["seconds"]
    assert first.layer_rounds["layer 0"] > 0
    assert first.parts["gelu"] > 0


def test_a_sweep_says_how_long_it_took(tmp_path):
    files = SweepFiles(tmp_path)
    files.experiment("pareto", ["front"])
    files.cell("pareto", "privit-g", (4, 8), 0, 0.9)
    said = gather(files.finish(cpu_seconds=90.0), FAST).facts["mini/quick (recipes/mini/quick.toml)"]
    assert "2.0 minutes with 2 jobs on 2 cores; 1.5 minutes of CPU time" in said


def test_a_protocol_that_the_sweep_did_not_price_leaves_its_costs_out(small):
    cell = gather(small, "aby3").cells[0]
    assert "relu_ops" in cell.costs
    assert "sent_bytes" not in cell.costs


def test_cells_without_their_runs_are_still_shown(tmp_path):
    files = SweepFiles(tmp_path)
    files.experiment("pareto", ["front"])
    files.cell("pareto", "privit-g", (4, 8), 0, 0.9, run="stages/gone")
    root = files.finish()
    (root / "stages/gone/plan.safetensors").unlink()
    assert gather(root, FAST).cells[0].layer_rounds == {}


def test_cells_that_were_not_run_or_cannot_be_read_are_listed(tmp_path):
    files = SweepFiles(tmp_path)
    files.experiment("pareto", ["front"])
    for seed in range(3):
        files.cell("pareto", "privit-g", (4, 8), seed, 0.9)
    root = files.finish()
    paths = [root / entry["cell"] for entry in files.entries]
    paths[1].unlink()
    paths[2].write_text(json.dumps({"status": "done"}))
    found = gather(root, FAST)
    assert len(found.cells) == 1
    assert found.missing[0].reason == "not run yet"
    assert "KeyError" in found.missing[1].reason


def test_the_file_of_predicted_costs_is_shown():
    results = Path(__file__).resolve().parents[3] / "docs" / "results"
    found = gather(results, FAST)
    assert {m.protocol for m in found.measured} == {"aby3", "cheetah", "semi2k-benchmark"}
    assert max(abs(m.error) for m in found.measured if m.protocol == "semi2k-benchmark") < 0.001
