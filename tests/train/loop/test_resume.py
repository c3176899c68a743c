"""kill -9 in the midst of each stage, the same command again: the same bits as without."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STAGES = ("teacher", "search", "finetune")
PROGRAM = Path(__file__).parents[1] / "tiny_line.py"
DEADLINE_SECONDS = 240


def start(folder: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(PROGRAM), str(folder), *STAGES]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, errors.decode()


def epochs_done(run: Path) -> int:
    try:
        return int(json.loads((run / "checkpoint" / "latest.json").read_text())["epoch"])
    except (OSError, ValueError):
        return 0


def kill_within(process: subprocess.Popen[bytes], run: Path, epoch: int, delay_seconds: float) -> None:
    """Kills the process once the run has saved `epoch` epochs, and a moment has passed."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while epochs_done(run) < epoch and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay_seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
def test_a_line_killed_in_every_stage_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole")
    moments = {stage: (random.randint(1, 6), random.uniform(0, 0.1)) for stage in STAGES}
    print(f"killed after {moments}")
    caught = 0
    for stage, (epoch, delay_seconds) in moments.items():
        process = start(tmp_path / "killed")
        kill_within(process, tmp_path / "killed" / stage, epoch, delay_seconds)
        caught += not (tmp_path / "killed" / stage / "result.json").exists()
    finish(start(tmp_path / "killed"))
    finish(whole)
    assert caught >= 2, "the kills came too late to show anything"
    for stage in STAGES:
        for name in ("weights.safetensors", "plan.safetensors"):
            expected, found = ((tmp_path / kind / stage / name).read_bytes() for kind in ("whole", "killed"))
            assert expected == found, f"{stage}/{name} differs; killed after {moments}"
        records = [
            [
                json.loads(line)
                for line in (tmp_path / kind / stage / "metrics.jsonl").read_text().splitlines()
            ]
            for kind in ("whole", "killed")
        ]
        assert [r["epoch"] for r in records[1]] == list(range(1, len(records[0]) + 1))
        assert [r["loss"] for r in records[0]] == [r["loss"] for r in records[1]]
