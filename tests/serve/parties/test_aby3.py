"""Three parties: a server, a client and a neutral helper that holds neither weights nor images."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from serving import TOLERANCE, digit_like, expected_logits, serving

from privit.artifact import FORMAT_VERSION
from privit.errors import ConnectionFailed
from privit.serve.engine.engine import Engine
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import LocalParty, local_helper
from privit.serve.wire.certs import make_certs
from privit.serve.wire.frames import HEADER, Kind, check_header, decode_message, encode_message, pack
from privit.serve.wire.handshake import WIRE_VERSION

HELLO = {"version": WIRE_VERSION, "purpose": "help", "description": {}, "token": "a" * 32, "rank": 1}


def test_three_parties_agree_with_the_clear_over_tls(tiny_folder: Path, tmp_path: Path) -> None:
    certs = make_certs(tmp_path / "certs", ["127.0.0.1"], ["alice"], ["127.0.0.1"])
    with (
        serving(tiny_folder, tmp_path / "state", "aby3", certs=certs) as three,
        three.connect(certs=certs["alice"]) as client,
    ):
        first, before = client.predict(digit_like(0)), client.setup
        # A batch is another session: server, client and helper compile for it.
        for seed, answer in zip((0, 1), [first, *client.predict_many([digit_like(1)], batch=2)], strict=True):
            expected = expected_logits(three, digit_like(seed))
            np.testing.assert_allclose(answer.logits, expected, atol=TOLERANCE)
        assert client.batch == 2
        assert client.setup is not before, "another batch is another session"
        assert client.private
        assert answer.rounds > 10
        for tunnel in client._tunnels:
            assert tunnel._left_bytes > tunnel._allowed_bytes / 2
        assert three.helper is not None
        three.helper.process.kill()
        with pytest.raises(ConnectionFailed):
            client.predict(digit_like(2))


@pytest.fixture(scope="module")
def helper(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalParty]:
    limits = Limits(sessions=1, queue=1, pair_seconds=4.0)
    with local_helper(tiny_folder / "client", tmp_path_factory.mktemp("helper"), limits) as party:
        yield party


@pytest.fixture(scope="module")
def description(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a party of the served model says of itself."""
    log_file = tmp_path_factory.mktemp("described") / "engine.log"
    return Engine(tiny_folder / "client", "aby3", "client", log_file).description()


@contextlib.contextmanager
def greeted(helper: LocalParty, **changes: object) -> Iterator[socket.socket]:
    """A connection that has said hello."""
    host, port = helper.address.split(":")
    with socket.create_connection((host, int(port)), timeout=120) as sock:
        sock.sendall(pack(Kind.CONTROL, 0, encode_message("hello", **(HELLO | changes))))
        yield sock


def next_message(sock: socket.socket) -> dict[str, object]:
    """The helper's next control message; what its engine sends is passed over."""
    with sock.makefile("rb") as stream:
        while header := stream.read(HEADER.size):
            kind, _, length = check_header(header)
            payload = stream.read(length)
            if kind is Kind.CONTROL:
                return decode_message(payload)
    raise AssertionError("the helper said nothing")


def say(helper: LocalParty, **changes: object) -> dict[str, object]:
    """What the helper answers to a hello with these changes."""
    with greeted(helper, **changes) as sock:
        return next_message(sock)


def test_a_helper_does_nothing_but_help(helper: LocalParty) -> None:
    assert say(helper, purpose="query")["code"] == "protocol"
    assert say(helper, rank=2)["code"] == "protocol"
    assert say(helper, token="short")["code"] == "protocol"


def test_a_helper_refuses_another_model_by_name(helper: LocalParty) -> None:
    answer = say(helper, description={"format": str(FORMAT_VERSION), "protocol": "aby3"})
    assert (answer["code"], answer["name"]) == ("mismatch", "spec")


def test_a_party_that_waits_alone_is_sent_away_and_leaves_its_place(
    helper: LocalParty, description: dict[str, str]
) -> None:
    for letter in "abcd":  # more than the waiting room holds
        answer = say(helper, description=description, token=letter * 32)
        assert (answer["code"], answer["message"]) == (
            "timeout",
            "the other party did not come to the helper within 4 seconds",
        )


def test_a_full_waiting_room_sends_the_next_away(helper: LocalParty, description: dict[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        waiting = [
            stack.enter_context(greeted(helper, description=description, token=letter * 32))
            for letter in "abc"
        ]
        codes = [next_message(sock)["code"] for sock in waiting]
    assert sorted(codes) == ["busy", "timeout", "timeout"]


def test_a_helper_runs_no_more_sessions_than_it_was_told_to(
    helper: LocalParty, description: dict[str, str]
) -> None:
    with contextlib.ExitStack() as stack:

        def pair(letter: str) -> list[socket.socket]:
            hello = {"description": description, "token": letter * 32}
            return [stack.enter_context(greeted(helper, rank=rank, **hello)) for rank in (0, 1)]

        running = pair("e")
        assert [next_message(sock)["type"] for sock in running] == ["ready", "ready"]
        waiting = pair("f")
        waiting[0].settimeout(3.0)
        with pytest.raises(TimeoutError):
            waiting[0].recv(1)
        for sock in running:
            sock.close()
        waiting[0].settimeout(120.0)
        assert [next_message(sock)["type"] for sock in waiting] == ["ready", "ready"]
