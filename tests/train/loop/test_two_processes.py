"""Two processes train as one does: same losses, same switches on both, same budget, killed or not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_resume import epochs_done
from tiny import tiny_teacher
from tiny_line import LOGGED_SEARCH

from privit.runs import Run, load_run
from privit.train.loop.batches import Images
from privit.train.search import search
from privit.train.stages import read_model
from privit.train.training_free import accuracy

PROGRAM = Path(__file__).parents[1] / "tiny_line.py"
COMPARED_STEPS = 20
DEADLINE_SECONDS = 240


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_pair(folder: Path) -> list[subprocess.Popen[str]]:
    """What torchrun does, without a third process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), "search"],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def finish_pair(folder: Path) -> Run:
    for process in start_pair(folder):
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, errors
    return load_run(folder / "search", "search")


def losses(run: Run) -> list[float]:
    return [loss for record in run.metrics() for loss in record["step_losses"]][:COMPARED_STEPS]


def result_of(run: Run) -> dict[str, Any]:
    result = run.result()
    assert result is not None
    return result


@pytest.mark.slow
def test_two_processes_of_which_one_is_killed_search_as_one_does(tmp_path: Path) -> None:
    teacher = tiny_teacher(tmp_path)
    pair = start_pair(tmp_path)
    while epochs_done(tmp_path / "search") < 2 and pair[1].poll() is None:
        time.sleep(0.005)
    pair[1].send_signal(signal.SIGKILL)
    # The survivor cannot go on alone: it ends by itself, with an error, and leaves its checkpoint.
    assert pair[0].wait(timeout=DEADLINE_SECONDS) != 0
    for process in pair:
        process.communicate()
    saved = epochs_done(tmp_path / "search")
    assert saved >= 2
    assert not (tmp_path / "search" / "result.json").exists(), "the kill came too late to show anything"
    together = finish_pair(tmp_path)
    records = together.metrics()
    assert [record["epoch"] for record in records] == list(range(1, len(records) + 1))
    assert len(records) > saved
    # Each rank's hash is over the plan, every weight and every switch.
    assert all(len(r["ranks"]) == 2 and len(set(r["ranks"])) == 1 for r in records)
    alone = search(teacher, tmp_path / "alone", LOGGED_SEARCH)
    result = result_of(together)
    assert (
        (result["kept_gelu"], result["kept_softmax"]) == (alone["kept_gelu"], alone["kept_softmax"]) == (2, 4)
    )
    one, two = losses(load_run(tmp_path / "alone")), losses(together)
    assert len(one) == COMPARED_STEPS
    assert two == pytest.approx(one, abs=1e-4)
    # The test images were shared out among the two; one process counts the same hits.
    model = read_model(together)
    test = Images(model.subject.load().test, model.subject.preprocessing, 1 << 30)
    assert result["accuracy"] == accuracy(model.student().eval(), test)
