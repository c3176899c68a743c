"""A tiny model that is really served: by two parties, and by three, for all tests that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served, make_artifact, serving

from privit.serve.parties.client import Client
from privit.serve.parties.limits import Limits

LIMITS = Limits(sessions=4, queue=8, hello_seconds=5.0, grace_seconds=2.0, idle_seconds=3600.0)
"""Four places, and short patience for those who say nothing."""


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the smallest model on disk."""
    folder = tmp_path_factory.mktemp("artifact")
    make_artifact(folder)
    return folder


@pytest.fixture(scope="session")
def served(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of cheetah, the default protocol."""
    with serving(tiny_folder, tmp_path_factory.mktemp("server"), limits=LIMITS) as found:
        yield found
        assert found.server.process.poll() is None, "the server died during the tests"


@pytest.fixture(scope="session")
def client(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One open session for all tests that only ask: its set-up is paid once."""
    with served.connect(state=tmp_path_factory.mktemp("client")) as opened:
        yield opened


@pytest.fixture(scope="session")
def three(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Server and helper of aby3, for tests of what does not depend on the protocol."""
    with serving(tiny_folder, tmp_path_factory.mktemp("three"), "aby3", LIMITS) as found:
        yield found
        for party in (found.server, found.helper):
            assert party is not None
            assert party.process.poll() is None, f"the party in {party.state} died during the tests"


@pytest.fixture(autouse=True)
def _state_in_tmp(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps logs of clients out of the user's own state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
