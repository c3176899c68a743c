"""A refused certificate is told by its reason: in the log of who refuses, and to who showed it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from privit.errors import ConnectionFailed, PrivitError, RequestError
from privit.serve.wire.certs import make_certs
from privit.serve.wire.dial import dial
from privit.serve.wire.gate import Gate
from privit.serve.wire.handshake import WIRE_VERSION
from privit.serve.wire.tls import Peer
from privit.serve.wire.tunnel import Tunnel

HELLO = {"version": WIRE_VERSION, "purpose": "health", "description": {}, "token": "", "rank": 1}
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server, a good client, and clients and servers whose certificates are bad in one way each."""
    folder, now = tmp_path_factory.mktemp("certs"), datetime.now(UTC)
    make_certs(folder, ["127.0.0.1"], ["alice"])
    for party in ("alice", "server"):
        _made(folder, party, "expired", now - 9 * DAY, now - DAY)
        _made(folder, party, "future", now + DAY, now + 9 * DAY)
        _made(folder, party, "self-signed", now - DAY, now + DAY)
        make_certs(folder / "other", ["127.0.0.1"], ["alice"])
        foreign = shutil.copytree(folder / "other" / party, folder / f"foreign-{party}")
        shutil.copy(folder / "ca" / "ca.crt", foreign)
    return folder


def _made(folder: Path, party: str, fault: str, start: datetime, end: datetime) -> None:
    """A copy of a party's folder with other dates, or signed by itself."""
    made = shutil.copytree(folder / party, folder / f"{fault}-{party}")
    old = x509.load_pem_x509_certificate((made / "cert.pem").read_bytes())
    signer = made / "key.pem" if fault == "self-signed" else folder / "ca" / "ca.key"
    key = serialization.load_pem_private_key(signer.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(old.subject if fault == "self-signed" else old.issuer, old.subject)
    builder = builder.public_key(old.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(end)
    for extension in old.extensions:
        if fault != "self-signed" or not isinstance(extension.value, x509.AuthorityKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    assert old.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    certificate = builder.sign(key, hashes.SHA256())
    (made / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


async def _listen(certs: Path | None) -> tuple[Gate, asyncio.Task[None]]:
    async def handler(tunnel: Tunnel, peer: Peer, hello: dict[str, object]) -> None:
        await tunnel.send("bye")

    gate = Gate("127.0.0.1", 0, certs, 5.0, handler)
    return gate, asyncio.ensure_future(gate.run())


def greet(listening: Path | None, connecting: Path | None) -> None:
    """Says hello to a party, as a client does."""

    async def run() -> None:
        gate, accepting = await _listen(listening)
        try:
            tunnel = await dial(f"127.0.0.1:{gate.port}", connecting, "server", 5.0)
            try:
                await tunnel.send("hello", **HELLO)
                await tunnel.receive(5.0)
            finally:
                await tunnel.close()
        finally:
            await asyncio.sleep(0.1)  # the other side's log line
            accepting.cancel()
            await gate.close()

    asyncio.run(run())


def show(listening: Path, connecting: Path | None) -> str:
    """What a client that does not look at its own certificate is told after it has shown it."""

    def ask(port: int) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(listening / "ca.crt")
        if connecting is not None:
            context.load_cert_chain(connecting / "cert.pem", connecting / "key.pem")
        plain = socket.create_connection(("127.0.0.1", port), 5.0)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
            secured.sendall(b"early bytes, which must not turn the answer into a reset")
            with pytest.raises(ssl.SSLError) as error:
                secured.recv(1)
        return str(error.value.reason)

    async def run() -> str:
        gate, accepting = await _listen(listening)
        try:
            return await asyncio.get_running_loop().run_in_executor(None, ask, gate.port)
        finally:
            await asyncio.sleep(0.1)
            accepting.cancel()
            await gate.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("client", "logged", "alert"),
    [
        ("expired-alice", "it has expired", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        ("future-alice", "it is not valid yet", "SSLV3_ALERT_BAD_CERTIFICATE"),
        ("self-signed-alice", "it is self-signed", "TLSV1_ALERT_UNKNOWN_CA"),
        ("foreign-alice", "it is from another CA", "TLSV1_ALERT_UNKNOWN_CA"),
        (None, "it showed no certificate", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
    ],
)
def test_the_server_logs_why_and_tells_the_client(
    certs: Path, client: str | None, logged: str, alert: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert show(certs / "server", client and certs / client) == alert  # type: ignore[arg-type]
    assert (
        f"connection from 127.0.0.1 ended: {'its certificate was refused: ' if client else ''}{logged}"
        in (caplog.text)
    )


@pytest.mark.parametrize("client", ["self-signed-alice", "foreign-alice"])
def test_a_client_says_why_its_certificate_was_refused(certs: Path, client: str) -> None:
    with pytest.raises(
        ConnectionFailed, match="refused this side's certificate: it is from another CA, or self-signed"
    ) as error:
        greet(certs / "server", certs / client)
    assert "privit certs" in error.value.hint


@pytest.mark.parametrize(
    ("party", "words"),
    [
        ("expired-alice", "expired-alice has expired: it was valid until 20"),
        ("future-alice", "future-alice is not valid yet: it begins on 20"),
    ],
)
def test_a_party_sees_the_dates_of_its_own_certificate_first(certs: Path, party: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as error:
        greet(certs / "server", certs / party)
    assert error.value.hint
    with pytest.raises(RequestError, match=words):
        greet(certs / party, certs / "alice")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("expired-server", "it has expired"),
        ("future-server", "it is not valid yet"),
        ("self-signed-server", "it is self-signed"),
        ("foreign-server", "it is from another CA"),
    ],
)
def test_a_client_says_what_is_wrong_with_the_servers_certificate(
    certs: Path, server: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server whose certificate ran out after it was started.
    monkeypatch.setattr("privit.serve.wire.tls._check_dates", lambda certs: None)
    with pytest.raises(ConnectionFailed, match=f"could not prove who it is: {words}"):
        greet(certs / server, certs / "alice")


def test_certificates_on_one_side_only_are_named_on_both(
    certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConnectionFailed, match="the other side speaks TLS, this side does not") as error:
        greet(certs / "server", None)
    assert "--certs" in error.value.hint
    assert "it does not speak TLS" in caplog.text
    with pytest.raises(PrivitError) as error:
        greet(None, certs / "alice")
    assert "--certs" in error.value.hint
    assert "the other side speaks TLS, this side does not" in caplog.text
