"""Two commands never work in one folder at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from privit.cli import main
from privit.errors import RequestError
from privit.locks import lock_folder
from privit.runs import Run, open_run

HOLD = """
import os, sys
from pathlib import Path
from privit.runs import open_run
run = open_run(Path(sys.argv[1]), "teacher", {"seed": 0}, {}, 1)
if os.fork() == 0:  # such as a loader of images, which may outlive its parent
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_command(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that works in `folder`, and has a child of its own."""
    command = [sys.executable, "-c", HOLD, str(folder), "a [b]"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def opened(folder: Path, locked: bool = True) -> Run:
    return open_run(folder, "teacher", {"seed": 0}, {}, 1, locked=locked)


def test_a_run_that_another_command_works_on_is_refused_with_who_it_is(tmp_path: Path) -> None:
    with another_command(tmp_path / "run") as process:
        with pytest.raises(RequestError) as caught:
            opened(tmp_path / "run")
        assert f"{tmp_path / 'run'} is in use by another command" in caught.value.message
        assert f"-c {tmp_path / 'run'} 'a [b]'" in caught.value.message
        assert f"process {process.pid} on " in caught.value.message
        assert "wait until that is done" in caught.value.hint


def test_the_lock_goes_with_a_killed_process_though_its_child_lives_on(tmp_path: Path) -> None:
    with another_command(tmp_path / "run") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert opened(tmp_path / "run").lock is not None


def test_other_processes_of_the_same_command_need_no_lock(tmp_path: Path) -> None:
    with another_command(tmp_path / "run"):
        assert opened(tmp_path / "run", locked=False).lock is None


def test_a_finished_run_is_read_by_anyone(tmp_path: Path) -> None:
    opened(tmp_path / "run").finish({"accuracy": 1.0})
    with another_command(tmp_path / "run"):
        assert opened(tmp_path / "run").result() == {"accuracy": 1.0}
    assert (run := opened(tmp_path / "run")).lock is None
    assert run.result() == {"accuracy": 1.0}


def test_a_run_is_free_again_once_nobody_refers_to_it(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    with pytest.raises(RequestError, match="in use by this command itself"):
        lock_folder(tmp_path / "run")
    del run
    with lock_folder(tmp_path / "run"):
        pass
    with lock_folder(tmp_path / "run"):
        pass


def test_a_lock_file_that_says_nothing_still_locks(tmp_path: Path) -> None:
    with another_command(tmp_path / "run"):
        (tmp_path / "run" / ".lock").write_text("")
        with pytest.raises(RequestError, match=r"is in use by another command\nhint"):
            lock_folder(tmp_path / "run")


def test_the_command_line_says_it_and_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = "vit:image_size=8,patch=4,width=8,depth=1,heads=1,channels=1"
    with another_command(tmp_path / "run"):
        assert main(["teacher", model, "--data", "digits", "--out", str(tmp_path / "run")]) == 2
    assert "is in use by another command" in capsys.readouterr().err
