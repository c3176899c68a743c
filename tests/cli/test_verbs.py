"""Every verb does its work: the whole way on the smallest model, as a user would type it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from privit.cli import main
from privit.presets import preset

MODEL = "vit:image_size=8,patch=4,width=8,depth=1,heads=2,channels=1"
QUICK = ["--preset", "digits", "--set", "batch_size=32"]
START_SECONDS = 300


def done(*arguments: Any) -> None:
    """Runs a verb that must succeed."""
    assert main([str(argument) for argument in arguments]) == 0


def said(capsys: pytest.CaptureFixture[str], *arguments: Any) -> dict[str, Any]:
    """What a verb that must succeed prints as JSON."""
    capsys.readouterr()
    done(*arguments, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a teacher, a search, a fine-tuned student and its artifact."""
    folder = tmp_path_factory.mktemp("runs")
    limit = ["--train-limit", 64, "--epochs", 1]
    done("teacher", MODEL, "--data", "digits", "--out", folder / "teacher", *limit, *QUICK, "--scratch")
    search = ["search", folder / "teacher", "--out", folder / "search", "--keep", 0.5]
    done(*search, *QUICK, "--set", "epochs=2")
    done("finetune", folder / "search", "--out", folder / "finetune", "--epochs", 1, *QUICK)
    done("export", folder / "finetune", "--out", folder / "out")
    return folder


def test_the_line_of_verbs_leaves_an_artifact_of_the_budget(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(capsys, "finetune", runs / "search", "--out", runs / "finetune", "--epochs", 1, *QUICK)
    assert found["kept_gelu"] == 2
    assert {path.name for path in (runs / "out").iterdir()} == {"server", "client"}


def test_fit_replaces_every_site(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "fit", runs / "teacher", "--out", tmp_path / "fit", "--images", 32)
    assert (found["kept_gelu"], found["kept_softmax"]) == (0, 0)


def test_a_search_with_an_enormous_budget_keeps_everything_that_is_computed(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--no-training", "--max-bytes", "1e300", "--out", tmp_path / "search"]
    found = said(capsys, "search", runs / "teacher", *arguments)
    # Of the last block, which is the only one here, only the class token is read: one GELU, one row a head.
    assert found["kept"] == {"gelu": [1], "softmax": [2], "norm": [3]}
    assert list(found["budgets"]) == ["bytes-1e300"]


def test_eval_counts_what_is_right(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "eval", runs / "out", "--images", 40)
    assert found["images"] == 40
    assert 0 <= found["accuracy"] <= 1


def test_cost_bench_and_compile_speak_of_the_same_program(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = ["--protocol", "semi2k-benchmark"]
    predicted = said(capsys, "cost", runs / "out", "--profile", "spu", *protocol)
    measured = said(capsys, "bench", runs / "out", *protocol)
    assert predicted["rounds"] == measured["rounds"]
    assert predicted["sent_bytes"] == measured["sent_bytes"]
    listed = said(capsys, "compile", runs / "out")
    assert any(layer["operations"] for layer in listed["layers"])


def test_report_writes_a_page_of_the_runs(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(capsys, "report", runs, "--out", tmp_path / "report")
    assert Path(found["page"]).read_text().startswith("<!DOCTYPE html>")


def test_what_is_shown_to_people_is_not_empty(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["eval", runs / "out", "--images", 5],
        ["compile", runs / "out"],
        ["cost", runs / "out"],
    ):
        capsys.readouterr()
        done(*arguments)
        assert len(capsys.readouterr().out.splitlines()) > 2, arguments[0]


@contextmanager
def started(log: Path, *arguments: Any) -> Iterator[str]:
    """A verb that serves, in a process of its own; gives its address once it says that it is ready."""
    command = [sys.executable, "-m", "privit", *map(str, arguments), "--port", "0"]
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            end = time.monotonic() + START_SECONDS
            while not (ready := re.search(r"ready on (\S+:\d+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            yield ready[1]
        finally:
            process.terminate()


def test_three_parties_answer_a_query_over_tls(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A short name, so that no narrow terminal cuts it.
    monkeypatch.chdir(tmp_path)
    certs, artifact, picture = tmp_path / "certs", runs / "out", Path("[4].png")
    done("certs", certs, "--server", "127.0.0.1", "--helper", "127.0.0.1", "--client", "alice")
    Image.fromarray(np.full((8, 8), 100, np.uint8)).save(picture)
    aby3 = ["--protocol", "aby3", "--helper"]
    with (
        started(tmp_path / "h.log", "helper", artifact / "client", "--certs", certs / "helper") as helper,
        started(
            tmp_path / "s.log", "serve", artifact / "server", "--certs", certs / "server", *aby3, helper
        ) as server,
    ):
        found = said(capsys, "health", server, "--certs", certs / "alice")
        assert found["protocol"] == "aby3"
        asking = ["query", picture, "--model", artifact / "client", "--server", server]
        done(*asking, "--certs", certs / "alice", *aby3, helper)
        assert "[4].png" in capsys.readouterr().out.replace("\n", "")


def test_the_demo_goes_the_whole_way_on_a_tiny_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = preset("digits")
    quick = replace(
        usual,
        teacher=replace(usual.teacher, epochs=1, train_limit=64, batch_size=32),
        search=replace(usual.search, epochs=2, batch_size=32),
        finetune=replace(usual.finetune, epochs=1, batch_size=32),
    )
    monkeypatch.setattr("privit.demo.preset", lambda _: quick)
    monkeypatch.setattr("privit.demo.DIGITS_MODEL", MODEL)
    found = said(capsys, "demo", "--out", tmp_path / "demo")
    assert [p["class_name"] for p in found["private"]["predictions"]] == found["private"]["in_the_clear"]
    assert Path(found["report"]).is_file()
    names = ["as commonly written", "rewritten", "PriViT as published", "the best known way"]
    for model, name in zip(found["models"], names, strict=True):
        assert name in model["model"]
    written, best = found["models"][0]["predicted"], found["models"][-1]["predicted"]
    # Of a teacher that saw 64 images the export trusts no short function: it may cost more, never silently.
    assert found["over_budget"] == (best["seconds"] > written["seconds"] / 3)


def test_calibrate_writes_a_table_that_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"MATMULS": ((1, 8, 2), (3, 8, 4), (5, 2, 5), (5, 5, 2), (2, 4, 4), (9, 9, 9), (9, 9, 9))}
    few |= {"VALUES": ((8,), (256,), (512,)), "REPEATS": 1, "NOTHING_REPEATS": 2}  # type: ignore[dict-item]
    for name, value in few.items():
        monkeypatch.setattr(f"privit.serve.measure.calibrate.{name}", value)
    from privit.serve.measure import link

    # One model of each number of channels.
    models = list(link.subjects())
    monkeypatch.setattr(link, "subjects", lambda: [models[0], models[3]])
    done("calibrate", tmp_path / "table.json", "--quick")
    from privit.cost.spu.table import read_table, shipped_table

    table, shipped = read_table(tmp_path / "table.json"), shipped_table("semi2k-benchmark")
    assert table.operations.keys() == shipped.operations.keys()
    for operation, sizes in (("square", (100,)), ("matmul", (4, 8, 6)), ("exp", (32,))):
        ours, theirs = table.linear(operation, sizes), shipped.linear(operation, sizes)
        assert ours.most_bytes == pytest.approx(theirs.most_bytes, rel=0.02)
