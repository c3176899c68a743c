"""The connecting end of a party: reaches a server or helper and knows who answered."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from privit.cost.network import Network
from privit.errors import ConnectionFailed
from privit.serve.wire import refusals
from privit.serve.wire.addresses import parse_address
from privit.serve.wire.frames import DATA_LIMIT
from privit.serve.wire.gate import keep_alive
from privit.serve.wire.tls import check_role, client_context, peer_of
from privit.serve.wire.tunnel import Tunnel


async def dial(
    address: str, certs: Path | None, role: str, seconds: float, network: Network | None = None
) -> Tunnel:
    """A tunnel to the party of `role` at HOST:PORT, whose certificate (chain, name, role) was checked."""
    host, port = parse_address(address)
    context = client_context(host, certs)
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(host, port, ssl=context, limit=DATA_LIMIT), seconds
        )
    except ssl.SSLCertVerificationError as error:
        raise ConnectionFailed(
            f"the {role} at {address} could not prove who it is: {refusals.found(error)}",
            "is this the right address, and are both folders from the same privit certs?",
        ) from error
    except ssl.SSLError as error:
        raise ConnectionFailed(
            f"no TLS connection with {address}: {error.reason or 'handshake failed'}",
            f"start both sides with --certs, or neither on loopback ({type(error).__name__})",
        ) from error
    except ConnectionResetError as error:
        raise ConnectionFailed(
            f"{address} broke off before the {role} had answered",
            "start both sides with --certs, or neither on loopback",
        ) from error
    except (OSError, TimeoutError, UnicodeError) as error:
        raise ConnectionFailed(
            f"nobody answers at {address}: {getattr(error, 'strerror', None) or 'no answer in time'}",
            f"is the {role} running there?",
        ) from error
    keep_alive(writer.get_extra_info("socket"))
    tunnel = Tunnel(reader, writer, first=False, network=network)
    tunnel.start()
    try:
        check_role(peer_of(writer), role)
    except ConnectionFailed:
        await tunnel.close()
        raise
    return tunnel
