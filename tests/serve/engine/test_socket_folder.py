"""Folders of sockets: private, and gone once their owner is dead."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from privit.serve.engine.socket_folder import PREFIX, SocketFolder, remove_abandoned


@pytest.fixture(autouse=True)
def _own_temporary_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def killed() -> Path:
    """The folder of a process that was killed while it had a socket there."""
    program = (
        "import time; from privit.serve.engine.socket_folder import SocketFolder\n"
        "folder = SocketFolder(); (folder.path / '0.sock').touch(); print(folder.path, flush=True)\n"
        "time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    path = Path(owner.stdout.readline().strip())
    assert (path / "0.sock").exists()
    remove_abandoned()
    assert path.is_dir(), "the owner lives"
    owner.kill()
    owner.wait()
    owner.stdout.close()
    return path


def test_the_folder_of_a_killed_process_goes_at_the_next_start(tmp_path: Path) -> None:
    abandoned = killed()
    assert abandoned.is_dir()
    folder = SocketFolder()
    assert list(tmp_path.iterdir()) == [folder.path]
    assert folder.path.stat().st_mode & 0o077 == 0
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_stays_with_its_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SocketFolder()
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder.path)  # a path below the length that sockets may have
        listener.bind("0.sock")
    SocketFolder().remove()
    assert (folder.path / "0.sock").exists()
    folder.remove()
    assert not folder.path.exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    kept = tmp_path / f"{PREFIX}kept"
    kept.mkdir()
    (kept / "notes.txt").touch()
    aside = tmp_path / "aside"
    aside.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(aside)
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / "privit-results").mkdir()
    before = sorted(tmp_path.rglob("*"))
    remove_abandoned()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to someone else")
def test_the_folder_of_another_user_stays(tmp_path: Path) -> None:
    foreign = tmp_path / f"{PREFIX}foreign"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    remove_abandoned()
    assert foreign.is_dir()
