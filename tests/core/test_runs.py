"""A run folder: opened twice, interrupted, damaged, unwritable."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from privit.errors import RequestError, WorkError
from privit.runs import library_versions, load_run, open_run, write_text, writing

CONFIG = {"epochs": 2, "seed": 0}
INPUTS = {"data": "digits"}


def opened(folder: Path, **changes: Any) -> Any:
    return open_run(folder, "teacher", CONFIG | changes, INPUTS, threads=1)


def test_the_same_command_finds_its_own_run(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "run"), opened(tmp_path / "run")
    assert first.identity == second.identity
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["threads"] == 1
    assert saved["libraries"] == library_versions()
    assert second.result() is None


def test_other_settings_in_the_same_folder_are_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    with pytest.raises(RequestError, match="epochs is 2 there, 3 here"):
        opened(tmp_path / "run", epochs=3)
    with pytest.raises(RequestError, match="holds a teacher run, but search was asked for"):
        open_run(tmp_path / "run", "search", CONFIG, INPUTS, threads=1)


def test_a_run_of_an_older_version_goes_on_where_new_settings_have_their_defaults(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    newer = CONFIG | {"noise": 0.0}
    defaults = {"epochs": 9, "noise": 0.0}
    same = open_run(tmp_path / "run", "teacher", newer, INPUTS, threads=1, defaults=defaults)
    assert same.description["config"] == CONFIG
    with pytest.raises(RequestError, match=r"noise is 0\.0 there, 0\.5 here"):
        open_run(tmp_path / "run", "teacher", CONFIG | {"noise": 0.5}, INPUTS, threads=1, defaults=defaults)


def test_a_folder_with_other_files_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(RequestError, match=r"no config\.json"):
        opened(tmp_path)


def test_another_thread_count_is_warned_about(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    with pytest.warns(UserWarning, match="threads 1 -> 4"):
        open_run(tmp_path / "run", "teacher", CONFIG, INPUTS, threads=4)


def test_records_after_the_checkpoint_and_a_half_written_line_are_dropped(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    for epoch in (1, 2, 3):
        run.add_metrics({"epoch": epoch})
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "lo')
    assert [record["epoch"] for record in run.metrics()] == [1, 2, 3]
    run.keep_metrics(2)
    run.add_metrics({"epoch": 3})
    assert [record["epoch"] for record in run.metrics()] == [1, 2, 3]


def test_only_a_finished_run_of_the_right_stage_is_loaded(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    with pytest.raises(RequestError, match="is not finished"):
        load_run(run.folder)
    run.finish({"accuracy": 1.0})
    assert load_run(run.folder, "teacher").result() == {"accuracy": 1.0}
    with pytest.raises(RequestError, match="is a teacher run, but a search run is needed"):
        load_run(run.folder, "search")
    with pytest.raises(RequestError, match="is not a run"):
        load_run(tmp_path)


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkError, match=r"cannot write to .*: Not a directory"):
        opened(tmp_path / "file" / "run")


def test_a_full_disk_keeps_the_old_file_and_says_what_to_do(tmp_path: Path) -> None:
    write_text(tmp_path / "result.json", "old")
    with pytest.raises(WorkError, match=r"No space left on device\nhint: make room"), writing(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (tmp_path / "result.json").read_text() == "old"


def test_a_run_with_settings_that_are_gone_or_renamed_since_goes_on(tmp_path: Path) -> None:
    gone = {"sparsify": "clamp", "compare_with": "lowest", "temperature_squared": True, "force": False}
    then = {"epochs": 2, "schedule": "constant", "warmup_epochs": 5, "max_cut_loss": 0.05} | gone
    open_run(tmp_path / "run", "search", then, INPUTS, threads=1)
    now = {"epochs": 2, "schedule": "constant", "warmup_epochs": 0, "penalty_warmup_epochs": 5}
    defaults = now | {"penalty_warmup_epochs": 9}
    again = open_run(tmp_path / "run", "search", now, INPUTS, threads=1, defaults=defaults)
    assert again.description["config"] == then  # and the checkpoint, which carries its hash, still fits
    with pytest.raises(RequestError, match="penalty_warmup_epochs is 5 there, 1 here"):
        open_run(tmp_path / "run", "search", now | {"penalty_warmup_epochs": 1}, INPUTS, threads=1)
