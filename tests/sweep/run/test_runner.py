"""A sweep skips what is finished, goes on past what fails, and leaves cells that say everything."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_recipe import EXPERIMENT, SETTING, write_recipe

from privit.artifact import load_artifact
from privit.cli import main
from privit.errors import RequestError
from privit.spec import KINDS, PAPER_KINDS
from privit.sweep.recipe.recipe import read_recipe
from privit.sweep.run.runner import _alone, run_sweep
from privit.sweep.run.tasks import Grid

EVERY = """
[methods.last-layer]
base = "layerwise"
layers = [1]

[[experiments]]
name = "every"
shows = ["front", "table"]

[[experiments.fronts]]
methods = ["privit-g", "privit-r", "random", "uniform", "last-layer", "mpcvit-plus"]
keep = [0.5]

[[experiments.fronts]]
methods = ["mpcvit", "snl", "mpcformer", "dense", "dense-rewritten"]
keep = [0.5]
"""


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Every method once, in two processes, and the recipe it came from."""
    folder = tmp_path_factory.mktemp("sweep")
    recipe = write_recipe(folder, EVERY)
    result = run_sweep(read_recipe(recipe), folder / "out", jobs=2)
    assert result["failed"] == []
    return recipe, folder / "out"


def cells(out: Path) -> dict[str, dict[str, Any]]:
    found = [read(path) for path in sorted(out.glob("cells/*/*/*/*/cell.json"))]
    return {cell["method"]: cell for cell in found}


def test_every_method_searches_fine_tunes_and_exports(swept: tuple[Path, Path]) -> None:
    found = cells(swept[1])
    assert len(found) == 11
    for name, cell in found.items():
        assert cell["status"] == "done"
        assert cell["artifact_problem"] is None, name
        assert load_artifact(swept[1] / cell["artifact"]).plan.hash() == cell["plan"]


def test_each_method_leaves_its_own_operators(swept: tuple[Path, Path]) -> None:
    operators = {name: dict(cell["operators"]) for name, cell in cells(swept[1]).items()}
    assert [found.pop("norm") for found in operators.values()] == [{"layer_norm": 5}] * len(operators)
    assert operators["privit-g"] == {
        "gelu": {"gelu": 5, "identity": 5},
        "softmax": {"softmax": 10, "squared_attn": 10},
    }
    assert operators["privit-r"]["gelu"] == {"relu": 5, "identity": 5}
    assert operators["mpcvit"] == {"gelu": {"gelu": 10}, "softmax": {"relu_softmax": 2, "scale_attn": 2}}
    assert operators["mpcvit-plus"]["gelu"] == {"gelu": 5, "identity": 5}
    assert operators["mpcvit-plus"]["softmax"] == {"relu_softmax": 2, "scale_attn": 2}
    assert operators["mpcformer"] == {"gelu": {"quad": 10}, "softmax": {"two_quad": 20}}
    assert operators["snl"] == {"gelu": {"gelu": 5, "identity": 5}, "softmax": {"softmax": 20}}
    assert operators["dense"] == {"gelu": {"gelu": 10}, "softmax": {"softmax": 20}}
    for name in ("random", "uniform"):
        assert sum(operators[name]["gelu"].values()) == 10
        assert operators[name]["softmax"] == {"softmax": 10, "squared_attn": 10}


def test_the_layerwise_method_starts_from_privits_largest_plan(swept: tuple[Path, Path]) -> None:
    found = cells(swept[1])
    layerwise, whole = found["last-layer"], found["privit-g"]
    assert layerwise["budget"]["name"] == "layers-1"
    assert layerwise["search"] == whole["search"]
    for kind in PAPER_KINDS:
        assert layerwise["kept"][kind] == [whole["kept"][kind][0], 0]
    assert layerwise["kept"]["norm"] == whole["kept"]["norm"]


def test_a_cell_says_everything_that_a_report_shows(swept: tuple[Path, Path]) -> None:
    for cell in cells(swept[1]).values():
        images = cell["per_class_images"]
        shares = [a * n for a, n in zip(cell["per_class_accuracy"], images, strict=True)]
        assert sum(shares) / cell["test_images"] == pytest.approx(cell["accuracy"])
        assert len(cell["teacher_per_class_accuracy"]) == len(cell["class_names"]) == 10
        assert cell["budget"]["sites"] == {kind: sum(cell["kept"][kind]) for kind in KINDS}
        cost = cell["cost"]
        assert sum(cost["by_part"]["relu_ops"].values()) == pytest.approx(cost["relu_ops"], abs=3)
        assert cost["with_ranges"]
        assert cost["spu"]["aby3"]["lan"]["sent_bytes"] > 0
        assert cell["epochs"]["teacher"] == 1
        assert (swept[1] / cell["run"] / "result.json").is_file()


def test_fewer_exact_sites_cost_less(swept: tuple[Path, Path]) -> None:
    found = {name: cell["cost"] for name, cell in cells(swept[1]).items()}
    assert found["privit-g"]["relu_ops"] < found["snl"]["relu_ops"] < found["dense"]["relu_ops"]
    assert found["privit-r"]["relu_ops"] < found["privit-g"]["relu_ops"]
    sent = {name: cost["spu"]["aby3"]["lan"]["sent_bytes"] for name, cost in found.items()}
    assert sent["privit-g"] < sent["dense-rewritten"] < sent["dense"]


def test_the_index_lists_experiments_settings_and_cells(swept: tuple[Path, Path]) -> None:
    _, out = swept
    (entry,) = read(out / "sweep.json")["recipes"].values()
    assert entry["expect"].startswith("privit sweep small.toml")
    assert entry["settings"]["finetune"]["epochs"] == 1
    assert [method["label"] for method in entry["experiments"][0]["methods"]][:2] == ["PriViT-G", "PriViT-R"]
    assert {cell["status"] for cell in entry["cells"]} == {"done"}
    assert all((out / cell["cell"]).is_file() for cell in entry["cells"])
    assert str(out) not in (out / "sweep.json").read_text()


def test_finished_cells_are_skipped(swept: tuple[Path, Path]) -> None:
    recipe, out = swept
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.json") if path.name != "sweep.json"}
    result = run_sweep(read_recipe(recipe), out)
    assert (result["stages_run"], result["done"]) == (0, 11)
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*.json") if p.name != "sweep.json"} == before


def test_another_recipe_in_the_same_folder_shares_stages(swept: tuple[Path, Path], tmp_path: Path) -> None:
    other = write_recipe(tmp_path, EXPERIMENT)
    result = run_sweep(read_recipe(other), swept[1])
    assert result["stages_run"] == 0
    assert len(read(swept[1] / "sweep.json")["recipes"]) == 2


def test_a_label_can_change_without_any_work(swept: tuple[Path, Path], tmp_path: Path) -> None:
    text = '[methods.privit-g]\nlabel = "renamed"\n' + EXPERIMENT
    assert run_sweep(read_recipe(write_recipe(tmp_path, text)), swept[1])["stages_run"] == 0
    assert read(swept[1] / "cells/small/privit-g/keep-0.5/seed-0/cell.json")["label"] == "renamed"


def test_a_failing_cell_is_reported_and_the_others_are_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
[methods.wild]
base = "random"
finetune = { learning_rate = 1e30, gradient_clip = 1e30 }

[[experiments]]
name = "small"
methods = ["wild", "random", "dense"]
keep = [0.5]
"""
    recipe = read_recipe(write_recipe(tmp_path, text))
    lines: list[str] = []
    result = run_sweep(recipe, tmp_path / "out", tell=lines.append)
    assert result["done"] == 2
    (failed,) = result["failed"]
    assert failed["cell"] == "cells/small/wild/keep-0.5/seed-0"
    assert "became NaN or infinite" in failed["error"]
    assert any(line.partition("] ")[2].startswith("FAILED finetune wild") for line in lines)
    found = cells(tmp_path / "out")
    assert (found["wild"]["status"], found["random"]["status"]) == ("failed", "done")
    (entry,) = read(tmp_path / "out" / "sweep.json")["recipes"].values()
    assert sorted(cell["status"] for cell in entry["cells"]) == ["done", "done", "failed"]
    # The same command tries the failed cell again, and nothing else.
    capsys.readouterr()
    command = ["sweep", str(recipe.file), "--out", str(tmp_path / "out"), "--json"]
    assert main(command) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["stages_run"] == 1
    assert "error: 1 of 3 cells failed" in captured.err


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, EXPERIMENT))

    def stop_after_the_teacher(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(recipe, tmp_path / "out", tell=stop_after_the_teacher)
    (entry,) = read(tmp_path / "out" / "sweep.json")["recipes"].values()
    assert [cell["status"] for cell in entry["cells"]] == ["missing"]
    tasks = len(Grid(recipe).tasks)
    assert run_sweep(recipe, tmp_path / "out")["stages_run"] == tasks - 1


def test_two_sweeps_do_not_share_a_folder_at_the_same_time(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, EXPERIMENT))
    with _alone(tmp_path / "out"), pytest.raises(RequestError, match="out is in use by"):
        run_sweep(recipe, tmp_path / "out")


def test_missing_data_stop_a_sweep_before_it_starts(tmp_path: Path) -> None:
    empty = tmp_path / "pictures"
    empty.mkdir()
    setting = SETTING.replace('data = "digits"', f'data = "{empty}"')
    recipe = read_recipe(write_recipe(tmp_path, EXPERIMENT, setting))
    with pytest.raises(RequestError):
        run_sweep(recipe, tmp_path / "out")
    assert not (tmp_path / "out" / "stages").exists()


def test_jobs_in_processes_of_their_own_give_the_same_cells(swept: tuple[Path, Path], tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, '[[experiments]]\nname = "every"\nmethods = ["dense"]\n'))
    assert run_sweep(recipe, tmp_path / "out", jobs=1)["failed"] == []
    here, there = cells(tmp_path / "out")["dense"], cells(swept[1])["dense"]
    assert there["accuracy"] == here["accuracy"]
    assert there["cost"] == here["cost"]


KILLED = """
import os, signal
from privit.sweep.run.runner import Pool
if __name__ == "__main__":
    pool = Pool(2)
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_sweep_leaves_no_process_behind(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    worker = Path(f"/proc/{int(run.stdout)}/stat")
    assert run.returncode == -9
    until = time.monotonic() + 30
    while time.monotonic() < until and worker.exists() and worker.read_text().split()[2] != "Z":
        time.sleep(0.1)
    assert time.monotonic() < until, "the worker waits for a sweep that is gone"


def test_mpcformers_artifact_runs_privately(swept: tuple[Path, Path], tmp_path: Path) -> None:
    from privit.serve.measure.evaluate import evaluate

    artifact = swept[1] / cells(swept[1])["mpcformer"]["artifact"]
    found = evaluate(artifact, "simulated", "semi2k-benchmark", images=2, record=tmp_path / "record")
    assert found["max_logit_error"] <= 0.05
    assert found["disagreements"] == []
