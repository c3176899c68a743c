"""One server of the smallest model, one page that asks it, and one browser for all tests of the page."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, chromium
from paging import Page, page_of
from serving import Served, make_artifact, serving


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the smallest model on disk."""
    made = tmp_path_factory.mktemp("artifact")
    make_artifact(made)
    return made


@pytest.fixture(scope="session")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Server and helper of the smallest model: the sessions of aby3 open soonest."""
    with serving(folder, tmp_path_factory.mktemp("server"), "aby3") as found:
        yield found


@pytest.fixture(scope="session")
def page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page that asks a server of cheetah, the default protocol: one session for all tests that only ask."""
    with (
        serving(folder, tmp_path_factory.mktemp("two")) as two,
        page_of(two, tmp_path_factory.mktemp("page")) as started,
    ):
        yield started


@pytest.fixture(scope="session")
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="session")
def session_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests, whose start is paid once."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (apt install chromium)")
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as started:
        yield started


@pytest.fixture
def browser(session_browser: Browser) -> Iterator[Browser]:
    """The browser; a script that failed, or that the page's own policy refused, fails the test."""
    session_browser.complaints.clear()
    yield session_browser
    session_browser.value("0")  # reads what the browser still has to say
    assert session_browser.complaints == []


@pytest.fixture(autouse=True)
def _state_in_tmp(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture
def other_plan(served: Served, tmp_path: Path) -> Path:
    """The client folder of a model that the server does not serve."""
    from privit.plan import uniform_plan

    make_artifact(tmp_path / "other", uniform_plan(served.artifact.spec, "identity", "squared_attn"))
    return tmp_path / "other" / "client"
