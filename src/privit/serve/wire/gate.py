"""The listening end of a party: accepts, checks who connects, hands over a tunnel with its first message."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from privit.errors import ConnectionFailed, RequestError
from privit.serve.wire import refusals
from privit.serve.wire.addresses import raised_at
from privit.serve.wire.frames import DATA_LIMIT, log_reason
from privit.serve.wire.handshake import WIRE_VERSION
from privit.serve.wire.tls import Peer, peer_of, server_context
from privit.serve.wire.tunnel import Tunnel

log = logging.getLogger("privit.serve")
UNGREETED_LIMIT = 64
"""Connections that have not said hello yet. One more ends the oldest of the address that has the most."""
LINGER_SECONDS = 1.0
"""How long a refused party may take to hear it and hang up."""

Handler = Callable[[Tunnel, Peer, dict[str, Any]], Awaitable[None]]


class Gate:
    """Listens at host and port; `handler` gets each connection that greets in time."""

    def __init__(self, host: str, port: int, certs: Path | None, hello_seconds: float, handler: Handler):
        self._tls = server_context(host, certs)
        self._listener = _listen(host, port)
        self._hello_seconds, self._handler = hello_seconds, handler
        self._tasks: set[asyncio.Task[None]] = set()
        self._ungreeted: dict[asyncio.Task[None], str] = {}  # oldest first
        self.port = int(self._listener.getsockname()[1])

    async def run(self) -> None:
        """Accepts until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
            except OSError as error:
                # Out of descriptors, or a connection that was reset at once: wait, do not stop serving.
                log.warning("accept failed: %s", error.strerror)
                await asyncio.sleep(0.2)
                continue
            task = asyncio.ensure_future(self._greet(connection, str(address[0])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._ungreeted[task] = _network_of(str(address[0]))
            task.add_done_callback(self._greeted)
            # A connection that is already there does not suspend `sock_accept`: let the others go on.
            await asyncio.sleep(0)
            self._make_room()

    def _greeted(self, task: asyncio.Task[None]) -> None:
        self._ungreeted.pop(task, None)

    def _make_room(self) -> None:
        """Whoever opens many silent connections loses its own, and nobody else's."""
        while len(self._ungreeted) > UNGREETED_LIMIT:
            ((network, count),) = Counter(self._ungreeted.values()).most_common(1)
            oldest = next(task for task, found in self._ungreeted.items() if found == network)
            del self._ungreeted[oldest]
            log.warning("a silent connection from %s ended: the oldest of %d there", network, count)
            oldest.cancel()

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Stops listening, gives running connections `grace_seconds` and then ends them."""
        self._listener.close()
        if self._tasks and grace_seconds:
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _greet(self, connection: socket.socket, address: str) -> None:
        current = asyncio.current_task()
        assert current is not None
        tunnel = None
        try:
            reader, writer = await self._streams(connection)
            tunnel = Tunnel(reader, writer, first=True)
            tunnel.start()
            peer = peer_of(writer)
            hello = await tunnel.receive(self._hello_seconds)
            if hello["type"] != "hello" or hello["version"] != WIRE_VERSION:
                await refuse(tunnel, "protocol", "this server speaks another version of privit's wire format")
                return
            self._greeted(current)
            await self._handler(tunnel, peer, hello)
        except (ConnectionFailed, OSError) as error:
            reason = log_reason(error) if isinstance(error, ConnectionFailed) else refusals.reason(error)
            log.warning("connection from %s ended: %s", address, reason)
        except Exception as error:
            log.error("a connection handler failed: %s", raised_at(error))
        finally:
            if tunnel is not None:
                await tunnel.close()
            else:
                connection.close()

    async def _streams(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection.setblocking(False)
        keep_alive(connection)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=DATA_LIMIT)
        protocol = asyncio.StreamReaderProtocol(reader)
        timeout = {"ssl_handshake_timeout": self._hello_seconds} if self._tls else {}
        spare = connection.dup()
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, **timeout
            )
        except ssl.SSLError as error:
            await refusals.tell(spare, error)
            raise
        finally:
            spare.close()
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def refuse(
    tunnel: Tunnel, code: str, message: str, hint: str = "", name: str = "", value: str = ""
) -> None:
    """Tells the other side why it is being refused, and lets it hang up; it may already be gone."""
    with contextlib.suppress(ConnectionFailed):
        await tunnel.send("error", code=code, message=message, hint=hint, name=name, value=value)
        # Who closes while bytes still arrive resets the connection, and the reason is lost with it.
        await tunnel.wait_for_end(LINGER_SECONDS)


def keep_alive(connection: socket.socket) -> None:
    """Makes the kernel notice a machine that has gone away without a word."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise RequestError(f"{port} is not a port", "choose one from 1 to 65535 with --port, or 0 for any")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host.strip("[]"), port), family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "not the name of a host"
        raise RequestError(
            f"cannot listen on {host}:{port}: {why}", "choose another port with --port, or --host"
        ) from error
    listener.setblocking(False)
    return listener


def _network_of(address: str) -> str:
    """The address, or for IPv6 the 64 bits that one machine cannot choose freely."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    if found.version == 4 or found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))
