"""Why TLS said no, in words, on each side that can know: the one that refuses and the one that is told.

asyncio throws away the alert with which a failed handshake ends, so that the other side sees only a
closed connection. Contexts made here keep the alert, and `tell` sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any

from privit.errors import ConnectionFailed

LINGER_SECONDS = 2.0
PROTOCOL_VERSION_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
HINT = "use the folder that privit certs made for this party, from the CA that the other side knows"

# What we found wrong with the other side's certificate, by OpenSSL's verify code.
_FOUND = {
    2: "it is from another CA",
    7: "it is from another CA",
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is self-signed",
    19: "it is from another CA",
    20: "it is from another CA",
    21: "it is from another CA",
    26: "it was made for another role",
}
# What the other side says about ours, by the name of its alert.
_TOLD = {
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not valid yet, or damaged",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it was revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it is not acceptable",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it was made for another role",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "none was shown",
    "TLSV1_ALERT_DECRYPT_ERROR": "it is from another CA",
    "TLSV1_ALERT_UNKNOWN_CA": "it is from another CA, or self-signed",
}
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"}


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            # OpenSSL has no answer to bytes that are no TLS; a plain privit client understands this one.
            error.alert = self.outgoing.read() or PROTOCOL_VERSION_ALERT  # type: ignore[attr-defined]
            raise


class Context(ssl.SSLContext):
    """TLS settings whose failed handshakes carry their alert as `error.alert`."""

    sslobject_class = _Handshake

    def wrap_bio(self, incoming: Any, outgoing: Any, *args: Any, **settings: Any) -> ssl.SSLObject:
        """What asyncio calls for each connection."""
        made = super().wrap_bio(incoming, outgoing, *args, **settings)
        assert isinstance(made, _Handshake)
        made.outgoing = outgoing
        return made


async def tell(connection: socket.socket, error: Exception) -> None:
    """Sends the alert that belongs to `error` and closes; waits a moment, as a reset would overtake it."""
    loop = asyncio.get_running_loop()
    with connection, contextlib.suppress(OSError, TimeoutError):
        alert = getattr(error, "alert", b"")
        if alert:
            await asyncio.wait_for(_say(loop, connection, alert), LINGER_SECONDS)


async def _say(loop: asyncio.AbstractEventLoop, connection: socket.socket, alert: bytes) -> None:
    await loop.sock_sendall(connection, alert)
    connection.shutdown(socket.SHUT_WR)
    while await loop.sock_recv(connection, 4096):
        pass


def found(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with the certificate that the other side showed."""
    return _FOUND.get(error.verify_code, error.verify_message)


def told(error: OSError) -> str | None:
    """What the other side found wrong with our certificate, if that is what ended the connection."""
    return _TOLD.get(error.reason) if isinstance(error, ssl.SSLError) and error.reason else None


def broken(error: OSError) -> ConnectionFailed:
    """The error of an established connection that broke; TLS 1.3 refuses a certificate only then."""
    if (words := told(error)) is not None:
        return ConnectionFailed(f"the other side refused this side's certificate: {words}", HINT)
    return ConnectionFailed(f"the connection broke: {error.strerror or type(error).__name__}")


def reason(error: Exception) -> str:
    """Why a connection ended below our own messages, for a log line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was refused: {found(error)}"
    if not isinstance(error, ssl.SSLError):
        return f"the connection broke ({type(error).__name__})"
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it showed no certificate"
    if error.reason in _NOT_TLS:
        return "it does not speak TLS: was it started without --certs?"
    if (words := told(error)) is not None:
        return f"it refused this side's certificate: {words}"
    return f"TLS refused it ({error.reason or type(error).__name__})"
