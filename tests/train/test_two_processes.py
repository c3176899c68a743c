"""Two processes train as one does: same losses, same switches on both, same budget."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_teacher
from tiny_line import LOGGED_SEARCH

from privit.runs import load_run
from privit.train.search import search

PROGRAM = Path(__file__).with_name("tiny_line.py")
COMPARED_STEPS = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_two_processes_search_as_one_does(tmp_path: Path) -> None:
    teacher = tiny_teacher(tmp_path)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    # What torchrun does, without a third process.
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path), "search"],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    alone = search(teacher, tmp_path / "alone", LOGGED_SEARCH)
    together = load_run(tmp_path / "search", "search")
    result = together.result()
    assert result is not None
    records = [run.metrics() for run in (load_run(tmp_path / "alone"), together)]
    one, two = ([loss for r in record for loss in r["step_losses"]][:COMPARED_STEPS] for record in records)
    assert len(one) == COMPARED_STEPS
    assert two == pytest.approx(one, abs=1e-4)
    # Each rank's hash is over the plan, every weight and every switch.
    assert all(len(record["ranks"]) == 2 and len(set(record["ranks"])) == 1 for record in records[1])
    assert (
        (result["kept_gelu"], result["kept_softmax"]) == (alone["kept_gelu"], alone["kept_softmax"]) == (2, 4)
    )
