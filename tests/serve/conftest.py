"""A tiny model that is really served: one server process on loopback for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served, make_artifact

from privit.artifact import load_artifact
from privit.serve.parties.client import Client, connect
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import local_server


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the smallest model on disk."""
    folder = tmp_path_factory.mktemp("artifact")
    make_artifact(folder)
    return folder


@pytest.fixture(scope="session")
def served(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with four places and short patience for those who say nothing."""
    limits = Limits(sessions=4, queue=8, hello_seconds=5.0, grace_seconds=2.0, idle_seconds=3600.0)
    with local_server(tiny_folder, tmp_path_factory.mktemp("server"), limits=limits) as server:
        yield Served(tiny_folder, load_artifact(tiny_folder / "server"), server)
        assert server.process.poll() is None, "the server died during the tests"


@pytest.fixture(scope="session")
def client(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One open session for all tests that only ask: its set-up is paid once."""
    state = tmp_path_factory.mktemp("client")
    with connect(served.client_folder, served.server.address, state=state) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _state_in_tmp(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps logs of clients out of the user's own state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
