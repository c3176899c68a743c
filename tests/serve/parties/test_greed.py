"""One client against the others: whoever takes places, connections or patience loses its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served, check_answers, children, digit_like, serving

from privit.cli import main
from privit.errors import ConnectionFailed, RequestError
from privit.serve.engine.process import EngineProcess
from privit.serve.parties.client import health
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import LocalParty
from privit.serve.parties.server import serve
from privit.serve.wire.certs import make_certs
from privit.serve.wire.dial import dial
from privit.serve.wire.frames import RemoteError
from privit.serve.wire.gate import UNGREETED_LIMIT
from privit.serve.wire.handshake import WIRE_VERSION
from privit.serve.wire.tunnel import Tunnel

OPEN_SECONDS = 6.0


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a server and two clients."""
    return make_certs(tmp_path_factory.mktemp("certs"), ["127.0.0.1"], ["alice", "bob"])


@pytest.fixture(scope="module")
def secured(
    tiny_folder: Path, certs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A server with mutual TLS, and short patience for a client that does not begin."""
    limits = Limits(sessions=2, queue=1, open_seconds=OPEN_SECONDS, grace_seconds=1.0)
    state = tmp_path_factory.mktemp("secured")
    with serving(tiny_folder, state, limits=limits, certs=certs) as found:
        yield found


@pytest.fixture(scope="module")
def description(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a correct hello says."""

    async def describe() -> dict[str, str]:
        log_file = tmp_path_factory.mktemp("engine") / "engine.log"
        engine = await EngineProcess.start(tiny_folder / "client", "cheetah", "client", log_file)
        await engine.stop()
        return engine.description

    return asyncio.run(describe())


class Silent:
    """Clients that say a correct hello and then nothing, in a thread of their own."""

    def __init__(self, party: LocalParty, description: dict[str, str], certs: Path | None = None):
        self._party, self._description, self._certs = party, description, certs
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tunnels: list[Tunnel] = []

    def __enter__(self) -> Silent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for tunnel in self._tunnels:
            self._run(tunnel.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hello(self) -> None:
        """Says one more hello, and waits for nothing."""
        self._run(self._hello())

    def end_of(self, number: int) -> RemoteError:
        """With what that connection was ended."""
        with pytest.raises(RemoteError) as error:
            self._run(self._until_the_end(self._tunnels[number]))
        return error.value

    def _run(self, work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)  # type: ignore[arg-type]

    async def _hello(self) -> None:
        tunnel = await dial(self._party.address, self._certs, "server", 10.0)
        self._tunnels.append(tunnel)
        fields = {"version": WIRE_VERSION, "purpose": "query", "token": "", "rank": 1}
        await tunnel.send("hello", **fields, description=self._description)

    async def _until_the_end(self, tunnel: Tunnel) -> None:
        while True:
            await tunnel.receive(60.0)


def log_of(served: Served) -> str:
    return (served.server.state / "server.log").read_text()


def test_a_certificate_holds_two_places_and_leaves_the_others_to_others(
    secured: Served, certs: dict[str, Path], description: dict[str, str]
) -> None:
    with Silent(secured.server, description, certs["alice"]) as alice:
        for _ in range(3):
            alice.hello()
        refused = alice.end_of(2)
        assert (refused.code, "already has 2 of the server's places" in refused.message) == ("busy", True)
        with secured.connect(certs=certs["bob"]) as bob:
            check_answers(secured, bob, 1)
        assert alice.end_of(0).code == "timeout"


def test_twenty_one_clients_that_never_begin_cost_a_good_one_seconds(
    tiny_folder: Path, description: dict[str, str], tmp_path: Path
) -> None:
    limits = Limits(sessions=2, queue=18, open_seconds=1.0, grace_seconds=1.0)
    with serving(tiny_folder, tmp_path, limits=limits) as served:
        server = served.server
        (worker,) = children(server.process.pid)
        with Silent(server, description) as silent:
            for _ in range(21):
                silent.hello()
            # An address has three quarters of the 20 places.
            assert sorted(silent.end_of(n).code for n in range(21)) == ["busy"] * 6 + ["timeout"] * 15
        assert worker in children(server.process.pid), "a compiled worker was lost"
        assert len(children(server.process.pid)) <= limits.sessions + 1
        with served.connect() as client:
            check_answers(served, client, 2)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_silent_sockets_shut_nobody_out(
    served: Served, secured: Served, certs: dict[str, Path], tls: bool
) -> None:
    party, alice = (secured, certs["alice"]) if tls else (served, None)
    host, port = party.server.address.split(":")
    lone = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
    silent = [socket.create_connection((host, int(port))) for _ in range(UNGREETED_LIMIT + 8)]
    try:
        assert health(party.server.address, alice)["protocol"] == "cheetah"
        # The oldest of the address that has the most went, and no one else.
        for sock, ended in ((silent[0], True), (silent[-1], False), (lone, False)):
            sock.settimeout(1.0 if ended else 0.1)
            with contextlib.nullcontext() if ended else pytest.raises(TimeoutError):
                assert sock.recv(1) == b""
    finally:
        for sock in (lone, *silent):
            sock.close()


def test_without_its_list_of_clients_a_server_does_not_start(tiny_folder: Path, tmp_path: Path) -> None:
    folder = make_certs(tmp_path, ["127.0.0.1"], ["alice"])["server"]
    (folder / "clients.json").unlink()
    with pytest.raises(RequestError, match=r"the list of clients .*clients\.json cannot be read") as error:
        serve(tiny_folder, 0, certs=folder)
    assert "privit certs" in error.value.hint


def test_a_list_of_clients_that_goes_away_lets_nobody_in(secured: Served, certs: dict[str, Path]) -> None:
    address, path = secured.server.address, certs["server"] / "clients.json"
    listed = path.read_text()
    try:
        path.unlink()
        with pytest.raises(ConnectionFailed, match="cannot read its list of clients"):
            health(address, certs["alice"])
        assert "clients.json cannot be read: No such file" in log_of(secured)
        path.write_text("{}")
        with pytest.raises(ConnectionFailed, match="does not know this client's certificate"):
            health(address, certs["alice"])
    finally:
        path.write_text(listed)
    assert health(address, certs["alice"])["protocol"] == "cheetah"


@pytest.mark.parametrize("port", ["99999", "-1"])
@pytest.mark.parametrize("verb", ["serve", "helper"])
def test_a_port_that_does_not_exist_is_a_wrong_request(
    tiny_folder: Path, verb: str, port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, str(tiny_folder), f"--port={port}"]) == 2
    assert f"{port} is not a port" in capsys.readouterr().err


def test_a_state_folder_that_cannot_be_written_is_a_wrong_request(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert main(["serve", str(tiny_folder), "--port=0"]) == 2
    assert "cannot write to" in capsys.readouterr().err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "privit-test", str(disk)], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Leaves no room on a disk."""
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


def test_a_server_does_not_start_on_a_full_disk(tiny_folder: Path, small_disk: Path) -> None:
    fill(small_disk)
    command = [sys.executable, "-m", "privit", "serve", str(tiny_folder), "--port=0"]
    done = subprocess.run(
        command, env=os.environ | {"XDG_STATE_HOME": str(small_disk)}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "unexpected" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "make room" in done.stderr


def test_a_disk_that_fills_up_costs_answers_and_not_the_server(tiny_folder: Path, small_disk: Path) -> None:
    state = small_disk / "server"
    with serving(tiny_folder, state, "aby3", Limits(grace_seconds=1.0)) as served:
        with served.connect() as client:
            fill(small_disk)
            with pytest.raises(ConnectionFailed, match="the server could not run this session"):
                client.predict(digit_like(0))
        assert health(served.server.address)["protocol"] == "aby3"
        assert "Traceback" not in (state / "output.log").read_text()
