"""`privit export` on a finished run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privit.artifact import load_artifact
from privit.cli import main


def test_an_export_says_which_value_comes_nearest_to_what_the_engine_can_hold(
    teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(teacher_run), "--out", str(tmp_path / "out")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert main(["export", str(teacher_run), "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["nearest_limit"]
    ranges = load_artifact(tmp_path / "out").public.ranges
    assert said["reached"] == ranges[said["place"]] < said["allowed"]
    assert f"{said['place']} reaches {said['reached']:.4g}, at most {said['allowed']:.4g} is allowed" in shown
