"""The server: holds the weights, gives each client a session of its own, learns neither image nor answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privit.errors import ConnectionFailed, HandshakeError, RequestError
from privit.plan import load_plan
from privit.serve.engine.pool import EnginePool
from privit.serve.engine.protocols import HELPER, Protocol, require_private
from privit.serve.parties.limits import Limits, QueryLedger, engines_here
from privit.serve.parties.places import Places
from privit.serve.parties.server_session import ServerOptions, Session
from privit.serve.wire import handshake
from privit.serve.wire.addresses import log_to, part_of, rotated, state_folder
from privit.serve.wire.frames import STARTING
from privit.serve.wire.gate import Gate, refuse
from privit.serve.wire.tls import LOOPBACK_CLIENT, Peer, check_role, known_clients
from privit.serve.wire.tunnel import Tunnel

log = logging.getLogger("privit.serve")


def serve(
    folder: Path,
    port: int,
    host: str = "127.0.0.1",
    protocol: str = "cheetah",
    certs: Path | None = None,
    limits: Limits | None = None,
    helper: str | None = None,
    state: Path | None = None,
    on_ready: Callable[[int], None] | None = None,
) -> None:
    """Serves the artifact's server/ folder until SIGTERM or SIGINT.

    Args:
        port: 0 lets the system choose; `on_ready` is called with the port once clients can connect.
        certs: the server's folder from `privit certs`; needed unless `host` is a loopback address.
        helper: HOST:PORT of the third party, for aby3 only.
    """
    check_protocol(protocol, helper)
    options = ServerOptions(Path(folder), port, host, protocol, certs, limits or Limits(), helper, state)
    asyncio.run(_run(options, on_ready))


def check_protocol(name: str, helper: str | None) -> Protocol:
    """The protocol, if it is private and its parties are complete; looks at nothing else."""
    found = require_private(name)
    if (found.parties == HELPER + 1) == (helper is not None):
        return found
    if helper is None:
        raise RequestError(
            f"{name} has three parties, but no helper was given",
            "start one with privit helper and give its address with --helper",
        )
    raise RequestError(f"{name} has no helper", "leave out --helper, or choose --protocol aby3")


async def _run(options: ServerOptions, on_ready: Callable[[int], None] | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    server = Server(options)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start()
    try:
        if on_ready is not None:
            on_ready(server.port)
        await stopped.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await server.stop()


class Server:
    """Sessions of one artifact inside a running event loop."""

    def __init__(self, options: ServerOptions):
        self._options = options
        self._protocol = check_protocol(options.protocol, options.helper)
        self._folder = part_of(options.folder, "server")
        self._places = Places(options.limits)
        if options.certs is not None:
            known_clients(options.certs)  # without the list nobody could connect: say so now
        self._gate = Gate(
            options.host, options.port, options.certs, options.limits.hello_seconds, self._on_connection
        )
        self.port = self._gate.port
        self._ready = asyncio.Event()

    async def start(self) -> None:
        """Prepares the first worker, so that a bad artifact fails here; who comes earlier is told to wait."""
        options = self._options
        plan = load_plan(self._folder / "plan.safetensors").hash()
        state = options.state or state_folder() / f"server-{plan[:16]}"
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._gate.close)
            undo.callback(_stop_log, log_to(state / "server.log"))
            self._ledger = QueryLedger(state / "queries.sqlite")
            undo.callback(self._ledger.close)
            engines = engines_here(options.host, self._protocol.parties, options.limits.sessions)
            log_file = rotated(state / "engine.log")
            self._pool = EnginePool(self._folder, options.protocol, "server", log_file, engines)
            undo.push_async_callback(self._pool.close)
            self._accepting = asyncio.ensure_future(self._gate.run())
            undo.callback(self._accepting.cancel)
            self.description = await self._pool.fill()
            self._undo = undo.pop_all()
        self._ready.set()
        log.info(
            "serving plan %s with %s at port %d",
            handshake.short(self.description["plan"]),
            options.protocol,
            self.port,
        )

    async def stop(self) -> None:
        """Takes no more clients, lets running queries end within the grace time and closes everything."""
        log.info("stopping: %d sessions, %d waiting", self._places.running, self._places.waiting)
        self._places.stop()
        self._accepting.cancel()
        await self._gate.close(self._options.limits.grace_seconds)
        await self._undo.aclose()

    async def _on_connection(self, tunnel: Tunnel, peer: Peer, hello: dict[str, Any]) -> None:
        try:
            name = self._name_of(peer)
        except RequestError as error:
            log.error("refused certificate %s: %s", peer.fingerprint[:16], error.message)
            told = "this server cannot read its list of clients, and takes nobody until it can"
            await refuse(tunnel, "refused", told, "tell the server's owner: its log says more")
            return
        if name is None:
            log.warning("refused certificate %s: not among the known clients", peer.fingerprint[:16])
            message = "this server does not know this client's certificate"
            await refuse(tunnel, "refused", message, "ask the server's owner to add it: privit certs")
            return
        if not self._ready.is_set():
            await tunnel.send("wait", position=STARTING)
            await tunnel.guard(self._ready.wait())
        asked = hello["description"]
        try:
            # Whoever asks how this server is may say for which batch: that is before its long compile.
            handshake.check_batch(asked, self._options.limits.batch, "this server")
        except HandshakeError as error:
            log.info("refused %s: %s", name, error.message)
            await refuse(tunnel, "limit", error.message, error.hint)
            return
        if hello["purpose"] == "health":
            await self._report_health(tunnel)
            return
        different = handshake.first_difference(handshake.of_batch(self.description, asked), asked)
        if different is not None:
            log.warning("refused %s: its %s differs", name, different)
            value = self.description[different]
            await refuse(tunnel, "mismatch", f"the {different} differs", "", different, value)
            return
        session = Session(
            self._options, self._protocol, self._pool, self._ledger, self._places, tunnel, peer, name, asked
        )
        await session.run()

    def _name_of(self, peer: Peer) -> str | None:
        """The client's name in the list of now: whoever is taken out is not let in again."""
        if self._options.certs is None:
            return LOOPBACK_CLIENT
        check_role(peer, "client")
        return known_clients(self._options.certs).get(peer.fingerprint)

    async def _report_health(self, tunnel: Tunnel) -> None:
        await tunnel.send(
            "health",
            protocol=self._options.protocol,
            private=self._protocol.private,
            plan=self.description["plan"],
            sessions=self._places.running,
            session_limit=self._options.limits.sessions,
            queued=self._places.waiting,
        )
        with contextlib.suppress(ConnectionFailed):
            await tunnel.receive(self._options.limits.hello_seconds)


def _stop_log(handler: logging.Handler) -> None:
    log.info("stopped")
    logging.getLogger("privit").removeHandler(handler)
    handler.close()
