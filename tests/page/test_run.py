"""Starting the page: what is wrong is said before anything is opened, and Ctrl-C is how it ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from paging import page_of, png
from serving import Served, digit_like

from privit.cli import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--server", "127.0.0.1:1"], "nowhere is not a privit artifact"),
        (["CLIENT", "--server", "somewhere"], "'somewhere' is not an address"),
        (["CLIENT", "--server", "127.0.0.1:1", "--examples", "nowhere"], "nowhere is not a folder"),
        (["CLIENT", "--server", "127.0.0.1:1", "--protocol", "semi2k-benchmark"], "could read the image"),
        (["CLIENT", "--server", "127.0.0.1:1", "--protocol", "aby3"], "no helper was given"),
    ],
)
def test_a_wrong_request_exits_2_with_what_was_found(
    served: Served, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    given = [str(served.client_folder) if argument == "CLIENT" else argument for argument in arguments]
    assert main(["page", *given, "--port", "0"]) == 2
    assert words in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_so(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert main(["page", str(served.client_folder), "--server", "127.0.0.1:1", "--port", port]) == 1
    assert "choose another port" in capsys.readouterr().err


def test_without_its_extra_the_page_names_the_pip_command(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("privit.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["page", str(served.client_folder), "--server", "127.0.0.1:1"]) == 2
    assert "pip install 'privit[page]'" in capsys.readouterr().err


def test_three_parties_answer_and_the_page_says_whom_one_trusts(tmp_path: Path, served: Served) -> None:
    assert served.helper is not None
    with page_of(served, tmp_path / "page") as page:
        _, about = page.request("GET", page.with_token("/about"))
        assert b"no two of the three parties collude" in about
        assert served.helper.address.encode() in about
        status, found = page.predict(png(digit_like(1)))
    assert status == 200, found
    assert found["protocol"] == "aby3"
