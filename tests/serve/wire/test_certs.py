"""The small CA: who may connect to whom, and who may not pose as whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from privit.errors import ConnectionFailed, RequestError
from privit.serve.wire.certs import fingerprint, make_certs
from privit.serve.wire.dial import dial
from privit.serve.wire.gate import Gate
from privit.serve.wire.handshake import WIRE_VERSION
from privit.serve.wire.tls import Peer, client_context, is_loopback, known_clients, server_context
from privit.serve.wire.tunnel import Tunnel

HELLO = {"version": WIRE_VERSION, "purpose": "health", "description": {}, "token": "", "rank": 1}


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make_certs(folder, ["localhost", "127.0.0.1"], ["alice", "bob"], ["127.0.0.1"])
    return folder


def meet(listening: Path, connecting: Path, address: str = "127.0.0.1", role: str = "server") -> list[Peer]:
    """Whom the listening side saw when the connecting side said hello."""
    seen: list[Peer] = []

    async def run() -> None:
        async def handler(tunnel: Tunnel, peer: Peer, hello: dict[str, object]) -> None:
            seen.append(peer)
            await tunnel.send("bye")

        gate = Gate("127.0.0.1", 0, listening, 2.0, handler)
        accepting = asyncio.ensure_future(gate.run())
        try:
            tunnel = await dial(f"{address}:{gate.port}", connecting, role, 5.0)
            try:
                await tunnel.send("hello", **HELLO)
                await tunnel.receive(5.0)
            finally:
                await tunnel.close()
        finally:
            accepting.cancel()
            await gate.close()

    asyncio.run(run())
    return seen


def test_server_and_client_know_each_other(certs: Path) -> None:
    (peer,) = meet(certs / "server", certs / "alice")
    assert peer.role == "client"
    assert peer.fingerprint == fingerprint((certs / "alice" / "cert.pem").read_bytes())
    assert known_clients(certs / "server") == {
        fingerprint((certs / name / "cert.pem").read_bytes()): name for name in ("alice", "bob")
    }


def test_a_client_cannot_pose_as_the_server_to_another_client(certs: Path) -> None:
    with pytest.raises(ConnectionFailed, match="could not prove who it is"):
        meet(certs / "alice", certs / "bob")


def test_the_helper_cannot_pose_as_the_server_even_under_its_address(certs: Path) -> None:
    with pytest.raises(ConnectionFailed, match="certificate for role helper, not server"):
        meet(certs / "helper", certs / "bob")


def test_a_server_under_another_name_is_refused(certs: Path, tmp_path: Path) -> None:
    make_certs(tmp_path, ["elsewhere.example"], ["alice"])
    with pytest.raises(ConnectionFailed, match=r"could not prove who it is: .*127\.0\.0\.1"):
        meet(tmp_path / "server", tmp_path / "alice")


def test_a_server_of_another_ca_is_refused_by_the_client(certs: Path, tmp_path: Path) -> None:
    make_certs(tmp_path, ["127.0.0.1"], ["alice"])
    with pytest.raises(ConnectionFailed, match="could not prove who it is"):
        meet(tmp_path / "server", certs / "alice")


def test_a_client_of_another_ca_is_refused_by_the_server(
    certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_certs(tmp_path, ["127.0.0.1"], ["mallory"])
    (tmp_path / "mallory" / "ca.crt").write_bytes((certs / "ca" / "ca.crt").read_bytes())
    with pytest.raises(ConnectionFailed):
        meet(certs / "server", tmp_path / "mallory")
    assert "its certificate was refused: it is from another CA" in caplog.text


def test_a_client_without_tls_gets_a_clear_error(certs: Path) -> None:
    with pytest.raises(ConnectionFailed):
        meet(certs / "server", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [server_context, client_context])
def test_an_address_beyond_loopback_needs_certificates(make: Callable[..., object]) -> None:
    assert make("127.0.0.1", None) is None
    for host in ("0.0.0.0", "192.0.2.1", "example.org", "::"):
        with pytest.raises(RequestError, match="not a loopback address") as error:
            make(host, None)
        assert "privit certs" in error.value.hint


def test_loopback_is_what_never_leaves_the_machine() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "localhost.example", "10.0.0.1", "")))


def test_a_client_can_be_added_later_and_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    make_certs(tmp_path, ["localhost"], ["alice"])
    before = (tmp_path / "alice" / "cert.pem").read_bytes(), (tmp_path / "ca" / "ca.crt").read_bytes()
    folders = make_certs(tmp_path, ["localhost"], ["bob"])
    assert before == (
        (tmp_path / "alice" / "cert.pem").read_bytes(),
        (tmp_path / "ca" / "ca.crt").read_bytes(),
    )
    assert set(json.loads((tmp_path / "server" / "clients.json").read_text())) == {"alice", "bob"}
    assert folders["bob"] == tmp_path / "bob"
    for key in tmp_path.glob("*/*.key"):
        assert key.stat().st_mode & 0o077 == 0
    for key in tmp_path.glob("*/key.pem"):
        assert key.stat().st_mode & 0o077 == 0
    assert not list((tmp_path / "alice").glob("ca.key"))


@pytest.mark.parametrize("name", ["", "../alice", "server", "ca", "a b"])
def test_names_that_are_no_folder_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="cannot be a client's name"):
        make_certs(tmp_path, ["localhost"], [name])


def test_an_incomplete_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"lacks ca\.crt, cert\.pem, key\.pem"):
        client_context("localhost", tmp_path)
