"""Folders of sockets: private, and gone once their owner is dead."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from privit.errors import RequestError
from privit.serve.engine.socket_folder import PREFIX, SocketFolder, remove_abandoned


@pytest.fixture(autouse=True)
def own_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


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


def test_the_folder_of_a_killed_process_goes_at_the_next_start(own_temporary_directory: Path) -> None:
    abandoned = killed()
    assert abandoned.is_dir()
    folder = SocketFolder()
    assert list(own_temporary_directory.iterdir()) == [folder.path]
    assert folder.path.stat().st_mode & 0o077 == 0
    folder.remove()
    folder.remove()
    assert list(own_temporary_directory.iterdir()) == []


def test_a_folder_in_use_stays_with_its_sockets() -> None:
    folder = SocketFolder()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.path / "0.sock"))
    SocketFolder().remove()
    assert (folder.path / "0.sock").exists()
    folder.remove()
    assert not folder.path.exists()


def test_what_is_not_ours_stays(own_temporary_directory: Path) -> None:
    kept = own_temporary_directory / f"{PREFIX}kept"
    kept.mkdir()
    (kept / "notes.txt").touch()
    aside = own_temporary_directory / "aside"
    aside.mkdir()
    (own_temporary_directory / f"{PREFIX}link").symlink_to(aside)
    (own_temporary_directory / f"{PREFIX}file").touch()
    (own_temporary_directory / "privit-results").mkdir()
    before = sorted(own_temporary_directory.rglob("*"))
    remove_abandoned()
    assert sorted(own_temporary_directory.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to someone else")
def test_the_folder_of_another_user_stays(own_temporary_directory: Path) -> None:
    foreign = own_temporary_directory / f"{PREFIX}foreign"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    remove_abandoned()
    assert foreign.is_dir()


def test_a_temporary_directory_too_deep_for_sockets_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, own_temporary_directory: Path
) -> None:
    deep = own_temporary_directory / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(RequestError, match="sockets of an engine have room for") as caught:
        SocketFolder()
    assert "TMPDIR" in str(caught.value.hint)
    assert list(deep.iterdir()) == []
