"""The listening end of a party: accepts, checks who connects, hands over a tunnel with its first message."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from privit.errors import ConnectionFailed, RequestError
from privit.serve.wire.frames import DATA_LIMIT
from privit.serve.wire.handshake import WIRE_VERSION
from privit.serve.wire.tls import Peer, peer_of, server_context
from privit.serve.wire.tunnel import Tunnel

log = logging.getLogger("privit.serve")
UNGREETED_LIMIT = 64
"""Connections that have not said hello yet; more are closed at once: silence cannot fill the server."""
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
        self._ungreeted = 0
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

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Stops listening, gives running connections `grace_seconds` and then ends them."""
        self._listener.close()
        if self._tasks and grace_seconds:
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _greet(self, connection: socket.socket, address: str) -> None:
        if self._ungreeted >= UNGREETED_LIMIT:
            connection.close()
            return
        self._ungreeted += 1
        greeted = False
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
            self._ungreeted -= 1
            greeted = True
            await self._handler(tunnel, peer, hello)
        except (ssl.SSLError, ConnectionFailed, OSError) as error:
            reason = error.message if isinstance(error, ConnectionFailed) else _tls_reason(error)
            log.warning("connection from %s ended: %s", address, reason)
        except Exception:
            log.exception("a connection handler failed")
        finally:
            if not greeted:
                self._ungreeted -= 1
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
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=self._tls, **timeout
        )
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
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host.strip("[]"), port), family=family, backlog=128)
    except OSError as error:
        raise RequestError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", "choose another port with --port"
        ) from error
    listener.setblocking(False)
    return listener


def _tls_reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS refused it ({error.reason or type(error).__name__})"
    return f"the connection broke ({type(error).__name__})"
