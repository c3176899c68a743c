"""Mutual TLS on privit's own channel: who may connect, and when a connection may go without."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from privit.errors import ConnectionFailed, RequestError
from privit.serve.wire.certs import CLIENTS_FILE, fingerprint, role_of, valid_between
from privit.serve.wire.refusals import Context

LOOPBACK_CLIENT = "loopback"
"""Who a client without a certificate is; possible on loopback only."""


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: what its certificate says, and its network address."""

    fingerprint: str
    role: str
    address: str = ""

    @property
    def certified(self) -> bool:
        """Whether it has shown a certificate."""
        return self.fingerprint != LOOPBACK_CLIENT


def is_loopback(host: str) -> bool:
    """Whether an address never leaves this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def server_context(host: str, certs: Path | None) -> ssl.SSLContext | None:
    """TLS for a listening party: a certificate of our CA is demanded of whoever connects."""
    if not _wanted(host, certs):
        return None
    assert certs is not None
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, certs)
    return context


def client_context(host: str, certs: Path | None) -> ssl.SSLContext | None:
    """TLS for a connecting party: the server's chain and name are checked, our certificate is shown."""
    if not _wanted(host, certs):
        return None
    assert certs is not None
    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = True
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, certs)
    return context


def peer_of(writer: asyncio.StreamWriter) -> Peer:
    """Who is at the other end of an established connection."""
    tls, address = writer.get_extra_info("ssl_object"), str(writer.get_extra_info("peername")[0])
    if tls is None:
        return Peer(LOOPBACK_CLIENT, "", address)
    der = tls.getpeercert(binary_form=True)
    assert der is not None
    return Peer(fingerprint(der), role_of(der), address)


def check_role(peer: Peer, *roles: str) -> None:
    """Refuses a certificate of our CA that was made for another role."""
    if peer.certified and peer.role not in roles:
        raise ConnectionFailed(
            f"the other side shows a certificate for role {peer.role or 'none'}, not {' or '.join(roles)}",
            "use the folder that privit certs made for this party",
        )


def known_clients(certs: Path) -> dict[str, str]:
    """Fingerprint to name of the clients that may connect; without the list, nobody may."""
    path = certs / CLIENTS_FILE
    hint = "it lists who may connect: make it again with privit certs, or restore it"
    try:
        listed = json.loads(path.read_text())
        return {str(value): str(name) for name, value in listed.items()}
    except OSError as error:
        raise RequestError(f"the list of clients {path} cannot be read: {error.strerror}", hint) from error
    except (ValueError, AttributeError) as error:
        raise RequestError(f"{path} is not a JSON object of names and fingerprints", hint) from error


def _wanted(host: str, certs: Path | None) -> bool:
    if certs is None and not is_loopback(host):
        raise RequestError(
            f"{host} is not a loopback address, and no certificates were given",
            "make them with privit certs and give this party's folder with --certs",
        )
    return certs is not None


def _load(context: ssl.SSLContext, certs: Path) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    missing = [name for name in ("ca.crt", "cert.pem", "key.pem") if not (certs / name).is_file()]
    if missing:
        raise RequestError(
            f"{certs} lacks {', '.join(missing)}", "give the folder that privit certs made for this party"
        )
    try:
        context.load_verify_locations(certs / "ca.crt")
        context.load_cert_chain(certs / "cert.pem", certs / "key.pem")
    except (ssl.SSLError, OSError) as error:
        raise RequestError(
            f"the certificates in {certs} cannot be used", "make them again: privit certs"
        ) from error
    _check_dates(certs)


def _check_dates(certs: Path) -> None:
    """Says here what the other side could only answer with an alert."""
    (start, end), now = valid_between((certs / "cert.pem").read_bytes()), datetime.now(UTC)
    if now > end:
        raise RequestError(
            f"the certificate in {certs} has expired: it was valid until {end:%Y-%m-%d %H:%M} UTC",
            "remove that folder and make it again: privit certs",
        )
    if now < start:
        raise RequestError(
            f"the certificate in {certs} is not valid yet: it begins on {start:%Y-%m-%d %H:%M} UTC",
            "is the clock of this machine right?",
        )
