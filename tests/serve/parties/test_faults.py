"""What goes wrong with one client must not reach another, and ends in a clear error on the right side."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served, check_answers, children, digit_like

from privit.artifact import FORMAT_VERSION
from privit.errors import ConnectionFailed
from privit.serve.engine.process import EngineDied
from privit.serve.engine.socket_folder import SocketFolder
from privit.serve.parties.client import Client, health
from privit.serve.wire.frames import HEADER, Kind, decode_message, encode_message, pack
from privit.serve.wire.handshake import WIRE_VERSION

PATIENCE_SECONDS = 180.0
QUERY = pack(Kind.CONTROL, 0, encode_message("query", number=1))


@pytest.fixture(scope="module")
def served(three: Served) -> Served:
    """Three parties, whose sessions open soonest; the soak below kills clients of cheetah."""
    return three


@pytest.fixture(scope="module")
def client(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A session that nothing which happens to others may disturb."""
    with served.connect(state=tmp_path_factory.mktemp("client")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _the_server_lives_and_answers(
    served: Served, client: Client, request: pytest.FixtureRequest
) -> Iterator[None]:
    before = health(served.server.address)["sessions"]
    yield
    if "garbage" not in request.node.name:  # of these there are many; the test after them asks
        check_answers(served, client, 1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while health(served.server.address)["sessions"] > before:
        assert time.monotonic() < deadline, "a session was left behind"
        time.sleep(0.1)


def server_log(served: Served) -> str:
    return (served.server.state / "server.log").read_text()


def wait_for_log(served: Served, text: str, since: int) -> None:
    """Waits until the server logs `text` after what it had logged before."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while text not in server_log(served)[since:]:
        assert time.monotonic() < deadline, server_log(served)[since:]
        time.sleep(0.05)


def open_raw(served: Served) -> socket.socket:
    host, port = served.server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def read_all(sock: socket.socket) -> bytes:
    """Everything until the other side closes; a reset counts as closing."""
    received = b""
    try:
        while data := sock.recv(4096):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_a_killed_client_frees_its_place(served: Served) -> None:
    before = len(server_log(served))
    program = (
        "import sys; from pathlib import Path; from privit.serve.parties.client import connect\n"
        f"client = connect(Path({str(served.client_folder)!r}), {served.server.address!r}, **{served.way})\n"
        "print(client._engine.socket_of(0).parent, flush=True)\n"
        "import numpy as np\n"
        "while True: client.predict(np.zeros((8, 8), np.uint8))"
    )
    victim = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    sockets = Path(victim.stdout.readline().strip())
    assert sockets.is_dir()
    engines = children(victim.pid)
    victim.kill()
    victim.wait()
    victim.stdout.close()
    wait_for_log(served, "WARNING session", before)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in engines):
        assert time.monotonic() < deadline, "the engine of a killed client lives on"
        time.sleep(0.05)
    SocketFolder().remove()  # what the next start does
    assert not sockets.exists()


def test_a_killed_worker_is_told_to_its_client(served: Served) -> None:
    before = len(server_log(served))
    with served.connect() as client:
        wait_for_log(served, "worker", before)
        worker = int(re.findall(r"worker (\d+)", server_log(served)[before:])[-1])
        assert worker in children(served.server.process.pid)
        killer = threading.Timer(0.2, os.kill, (worker, signal.SIGKILL))
        with pytest.raises(ConnectionFailed, match="the server's engine stopped") as error:
            _predict_until(client, killer)
    assert error.value.hint
    assert "the engine on this side stopped (SIGKILL)" in server_log(served)


def test_a_crash_of_the_clients_own_engine_is_a_clear_error_there(served: Served) -> None:
    before = len(server_log(served))
    with served.connect() as client:
        assert client._engine is not None
        engine = client._engine.pid
        with pytest.raises(EngineDied, match=r"on this side stopped \(SIGABRT\)") as error:
            _predict_until(client, threading.Timer(0.2, os.kill, (engine, signal.SIGABRT)))
    assert Path(error.value.hint.removeprefix("its log is ")).is_file()
    wait_for_log(served, "the client reported engine", before)


def _predict_until(client: Client, fault: threading.Timer) -> None:
    fault.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        client.predict(digit_like(0))
    pytest.fail("nothing happened")


def test_a_client_that_connects_and_says_nothing_is_closed(served: Served) -> None:
    before = len(server_log(served))
    with open_raw(served) as sock:
        assert read_all(sock) == b""
    wait_for_log(served, "said nothing for 5 seconds", before)


@pytest.mark.parametrize(
    "garbage",
    [
        os.urandom(4096),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        HEADER.pack(Kind.DATA, 0, 2**32 - 1),
        HEADER.pack(Kind.CONTROL, 0, 10) + b"[" * 10,
        pack(Kind.CONTROL, 0, b"[" * 60_000),
        pack(Kind.OPEN, 1),
        pack(Kind.BLOB, 0, b"x"),
        QUERY,
    ],
    ids=["random", "http", "huge", "half-json", "deep-json", "open-first", "blob", "query-first"],
)
def test_garbage_closes_that_connection_only(served: Served, garbage: bytes) -> None:
    before = len(server_log(served))
    with open_raw(served) as sock:
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)
        answer = read_all(sock)
    if garbage == QUERY:  # which is a message, only not the first one
        assert decode_message(answer[HEADER.size :])["code"] == "protocol"
    else:
        assert answer == b""
        wait_for_log(served, "connection from 127.0.0.1 ended", before)


def test_a_program_of_another_engine_version_is_refused_by_name(served: Served) -> None:
    before = len(server_log(served))
    hello = {"version": WIRE_VERSION, "purpose": "query", "description": {}, "token": "", "rank": 1}
    described = {"format": str(FORMAT_VERSION), "protocol": served.protocol, "plan": "0" * 64}
    with open_raw(served) as sock:
        sock.sendall(pack(Kind.CONTROL, 0, encode_message("hello", **(hello | {"description": described}))))
        answer = read_all(sock)
    message = decode_message(answer[HEADER.size :])
    assert (message["type"], message["code"], message["name"]) == ("error", "mismatch", "spec")
    wait_for_log(served, "refused loopback: its spec differs", before)


def test_a_wire_format_of_another_version_is_refused(served: Served) -> None:
    hello = {"version": WIRE_VERSION + 1, "purpose": "query", "description": {}, "token": "", "rank": 1}
    with open_raw(served) as sock:
        sock.sendall(pack(Kind.CONTROL, 0, encode_message("hello", **hello)))
        message = decode_message(read_all(sock)[HEADER.size :])
    assert message["code"] == "protocol"


def test_text_that_a_client_sends_is_not_logged(served: Served) -> None:
    before = len(server_log(served))
    fields = dict.fromkeys(("code", "message", "hint", "name", "value"), "my-own-words")
    with open_raw(served) as sock:
        sock.sendall(pack(Kind.CONTROL, 0, encode_message("error", **fields)))
        read_all(sock)
    wait_for_log(served, "the other side reported unknown", before)
    for file in served.server.state.glob("*.log"):
        assert "my-own-words" not in file.read_text()


def test_a_hundred_silent_connections_leave_room_for_a_good_one(served: Served) -> None:
    silent = [open_raw(served) for _ in range(100)]
    assert health(served.server.address)["protocol"] == served.protocol
    for sock in silent:
        sock.close()


def test_a_short_soak_loses_no_answer_and_leaves_no_session() -> None:
    """The short form of `make soak`: one client asks, and one is killed at a random moment."""
    counts = {"queries": 2, "clients": 1, "killed-clients": 1, "killed-workers": 0, "bad-inputs": 1}
    counts |= {"rough-sessions": 0}  # tests/serve/parties/test_rough_network.py has its own
    arguments = [word for name, count in counts.items() for word in (f"--{name}", str(count))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *arguments],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["passed"]
    assert report["clients_killed"] == 1
    assert report["bad_inputs_refused"] == 1
    assert report["queries_answered"] >= 2
    assert report["files_left"] == []
