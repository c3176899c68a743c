"""Three parties: a server, a client and a neutral helper that holds neither weights nor images."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest
from serving import TOLERANCE, Served, digit_like, expected_logits

from privit.errors import ConnectionFailed
from privit.serve.parties.client import connect
from privit.serve.parties.processes import LocalParty, local_helper, local_server
from privit.serve.wire.certs import make_certs
from privit.serve.wire.frames import HEADER, Kind, decode_message, encode_message, pack
from privit.serve.wire.handshake import WIRE_VERSION

HELLO = {"version": WIRE_VERSION, "purpose": "help", "description": {}, "token": "a" * 32, "rank": 1}


def test_three_parties_agree_with_the_clear_over_tls(
    tiny_folder: Path, served: Served, tmp_path: Path
) -> None:
    certs = make_certs(tmp_path / "certs", ["127.0.0.1"], ["alice"], ["127.0.0.1"])
    with (
        # The helper gets the client's folder: it holds no weights.
        local_helper(served.client_folder, tmp_path / "helper", certs=certs["helper"]) as helper,
        local_server(
            tiny_folder,
            tmp_path / "server",
            "aby3",
            helper=helper.address,
            certs=certs["server"],
        ) as server,
        connect(
            served.client_folder, server.address, "aby3", certs=certs["alice"], helper=helper.address
        ) as client,
    ):
        for seed in (0, 1):
            answer = client.predict(digit_like(seed))
            np.testing.assert_allclose(
                answer.logits, expected_logits(served, digit_like(seed)), atol=TOLERANCE
            )
        assert client.private
        assert answer.rounds > 10
        helper.process.kill()
        with pytest.raises(ConnectionFailed):
            client.predict(digit_like(2))


@pytest.fixture(scope="module")
def helper(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LocalParty:
    with local_helper(tiny_folder / "client", tmp_path_factory.mktemp("helper")) as party:
        yield party  # type: ignore[misc]


def say(helper: LocalParty, **changes: object) -> dict[str, object]:
    """What the helper answers to a hello with these changes."""
    host, port = helper.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(pack(Kind.CONTROL, 0, encode_message("hello", **(HELLO | changes))))
        answer = b""
        while data := sock.recv(4096):
            answer += data
    return decode_message(answer[HEADER.size :])


def test_a_helper_does_nothing_but_help(helper: LocalParty) -> None:
    assert say(helper, purpose="query")["code"] == "protocol"
    assert say(helper, rank=2)["code"] == "protocol"
    assert say(helper, token="short")["code"] == "protocol"


def test_a_helper_refuses_another_model_by_name(helper: LocalParty) -> None:
    answer = say(helper, description={"format": "1", "protocol": "aby3"})
    assert (answer["code"], answer["name"]) == ("mismatch", "spec")
