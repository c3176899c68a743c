"""The neutral third party of aby3: computes on shares that tell it nothing while it colludes with nobody."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privit.errors import ConnectionFailed, HandshakeError, PrivitError
from privit.serve.engine.pool import EnginePool
from privit.serve.engine.process import EngineDied, EngineProcess
from privit.serve.engine.protocols import CLIENT, HELPER, SERVER
from privit.serve.parties.limits import Limits, engines_here
from privit.serve.wire import handshake
from privit.serve.wire.addresses import log_to, part_of, state_folder
from privit.serve.wire.dial import dial
from privit.serve.wire.frames import log_reason
from privit.serve.wire.gate import Gate, refuse
from privit.serve.wire.tls import Peer, check_role
from privit.serve.wire.tunnel import SilentPeer, TooManyBytes, Tunnel

log = logging.getLogger("privit.helper")
PARTIES, RANK = 3, HELPER
PROTOCOL = "aby3"
TOKEN_CHARACTERS = 32
ROLES = {SERVER: "server", CLIENT: "client"}
DIAL_SECONDS = 30.0


class HelperFailed(ConnectionFailed):
    """The helper refused a session, or went away before it began."""


@dataclass(frozen=True)
class _First:
    """The party of a session that came first; the events say that the other came, and that both are done."""

    rank: int
    tunnel: Tunnel
    description: dict[str, str]
    paired: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


def run_helper(
    folder: Path,
    port: int,
    host: str = "127.0.0.1",
    certs: Path | None = None,
    limits: Limits | None = None,
    state: Path | None = None,
    on_ready: Callable[[int], None] | None = None,
) -> None:
    """Helps server and client of the artifact whose client/ folder is given, until SIGTERM or SIGINT."""
    asyncio.run(_run(folder, port, host, certs, limits or Limits(), state, on_ready))


async def join_helper(
    address: str, certs: Path | None, token: str, rank: int, engine: EngineProcess, seconds: float
) -> Tunnel:
    """A tunnel to a helper that is ready, attached to this side's engine.

    Both parties show the same one-time token; the helper is ready when the other has come, too.
    """
    tunnel = await dial(address, certs, "helper", DIAL_SECONDS)
    try:
        # Attached first: the helper's engine may reach for ours as soon as it has said that it is ready.
        allowed = engine.allowance.setup_bytes
        await tunnel.attach(engine.socket_of(rank), engine.socket_of(RANK), allowed)
        await tunnel.send(
            "hello",
            version=handshake.WIRE_VERSION,
            purpose="help",
            description=engine.description,
            token=token,
            rank=rank,
        )
        if (await tunnel.receive(seconds))["type"] != "ready":
            raise ConnectionFailed("it answered with something other than ready")
    except ConnectionFailed as error:
        await tunnel.close()
        raise HelperFailed(f"no help from {address}: {error.message}", error.hint) from error
    except BaseException:
        await tunnel.close()
        raise
    return tunnel


async def _run(
    folder: Path,
    port: int,
    host: str,
    certs: Path | None,
    limits: Limits,
    state: Path | None,
    on_ready: Callable[[int], None] | None,
) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    helper = Helper(part_of(folder, "client"), port, host, certs, limits, state or state_folder() / "helper")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await helper.start()
    try:
        if on_ready is not None:
            on_ready(helper.port)
        await stopped.wait()
    finally:
        await helper.stop()


class Helper:
    """Pairs the two connections of each session and runs rank 2 of the engine for them."""

    def __init__(self, folder: Path, port: int, host: str, certs: Path | None, limits: Limits, state: Path):
        self._limits = limits
        self._gate = Gate(host, port, certs, limits.hello_seconds, self._on_connection)
        engines = engines_here(host, HELPER + 1, limits.sessions)
        self._pool = EnginePool(folder, PROTOCOL, "helper", state / "engine.log", engines)
        self._log_handler = log_to(state / "helper.log")
        self._waiting: dict[str, _First] = {}
        self._in_session = 0
        self._places = asyncio.Semaphore(limits.sessions)
        self.port = self._gate.port

    async def start(self) -> None:
        """Prepares the first worker and begins to accept."""
        try:
            self.description = await self._pool.fill()
        except BaseException:
            await self._gate.close()
            raise
        self._accepting = asyncio.ensure_future(self._gate.run())
        log.info("helping with plan %s at port %d", handshake.short(self.description["plan"]), self.port)

    async def stop(self) -> None:
        """Ends every session and worker."""
        self._accepting.cancel()
        await self._gate.close()
        await self._pool.close()
        logging.getLogger("privit").removeHandler(self._log_handler)
        self._log_handler.close()

    async def _on_connection(self, tunnel: Tunnel, peer: Peer, hello: dict[str, Any]) -> None:
        rank, token = hello["rank"], hello["token"]
        if hello["purpose"] != "help" or rank not in ROLES or len(token) != TOKEN_CHARACTERS:
            await refuse(
                tunnel, "protocol", "this is a helper: it takes part in aby3 sessions and nothing else"
            )
            return
        check_role(peer, ROLES[rank])
        asked = hello["description"]
        try:
            handshake.check_batch(asked, self._limits.batch, "the helper")
        except HandshakeError as error:
            log.warning("refused a %s: %s", ROLES[rank], error.message)
            await refuse(tunnel, "limit", error.message, error.hint)
            return
        expected = handshake.of_batch(self.description, asked)
        different = handshake.first_difference(expected, asked)
        if different is not None:
            log.warning("refused a %s: its %s differs", ROLES[rank], different)
            await _refuse_different(tunnel, different, expected)
            return
        first = self._waiting.pop(token, None)
        if first is None:
            await self._wait_for_other(tunnel, token, rank, asked)
            return
        first.paired.set()
        try:
            if first.rank == rank:
                await refuse(tunnel, "protocol", "two parties claimed the same place in one session")
            elif different := handshake.first_difference(first.description, asked):
                await _refuse_different(tunnel, different, first.description)
            else:
                await self._session({first.rank: first.tunnel, rank: tunnel}, token, asked)
        finally:
            first.over.set()

    async def _wait_for_other(self, tunnel: Tunnel, token: str, rank: int, asked: dict[str, str]) -> None:
        """Keeps the connection of the party that came first: in the waiting room, then in its session."""
        room = self._limits.queue + self._limits.sessions
        if len(self._waiting) + self._in_session >= room:
            await refuse(tunnel, "busy", f"all {room} places of the helper are taken", "try again later")
            return
        first = self._waiting[token] = _First(rank, tunnel, asked)
        seconds = self._limits.pair_seconds
        try:
            await tunnel.guard(first.paired.wait(), seconds)
        except SilentPeer:
            if token in self._waiting:
                log.warning("a %s waited alone for %g seconds", ROLES[rank], seconds)
                told = f"the other party did not come to the helper within {seconds:g} seconds"
                await refuse(tunnel, "timeout", told, "try again")
                return
        finally:
            self._waiting.pop(token, None)
        await tunnel.guard(first.over.wait())

    async def _session(self, tunnels: dict[int, Tunnel], token: str, asked: dict[str, str]) -> None:
        """Serves the two until one of them goes; every other end is logged and told to both."""
        self._in_session += 1
        try:
            await tunnels[SERVER].guard(tunnels[CLIENT].guard(self._serve(tunnels, token, asked)))
        except SilentPeer as error:
            log.warning("a session ended: %s", error.message)
            await _refuse_all(tunnels, "timeout", error.message)
        except EngineDied as error:
            log.error("%s; %s", error.message, error.hint)
            await _refuse_all(tunnels, "engine", "the helper's engine stopped during this session")
        except TooManyBytes as error:
            log.warning("a session ended: %s", error.message)
            await _refuse_all(tunnels, "limit", "a party sent more than the program can need")
        except PrivitError as error:
            log.info("a session ended: %s", log_reason(error))
        finally:
            self._in_session -= 1

    async def _serve(self, tunnels: dict[int, Tunnel], token: str, asked: dict[str, str]) -> None:
        async with self._place():
            engine = await self._pool.take(handshake.batch_of(asked))
            try:
                if different := handshake.first_difference(engine.description, asked):
                    for tunnel in tunnels.values():
                        await _refuse_different(tunnel, different, engine.description)
                    return
                for rank, tunnel in tunnels.items():
                    allowed = engine.allowance.setup_bytes
                    await tunnel.attach(engine.socket_of(RANK), engine.socket_of(rank), allowed)
                # Only now may either open: both have attached before they came.
                for tunnel in tunnels.values():
                    await tunnel.send("ready")
                work = engine.open(PARTIES, token, self._limits.idle_seconds + self._limits.query_seconds)
                await tunnels[CLIENT].guard(work, self._limits.setup_seconds)
                self._pool.refill()
                log.info("a session is open")
                await _answer(engine, tunnels)
            finally:
                await engine.stop()

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """One of the places of running sessions, after waiting for it as long as a set-up may take."""
        seconds = self._limits.setup_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError:
            raise SilentPeer(f"all sessions of the helper were taken for {seconds:g} seconds") from None
        try:
            yield
        finally:
            self._places.release()


async def _refuse_different(tunnel: Tunnel, name: str, description: dict[str, str]) -> None:
    told = f"the helper's {name} differs"
    await refuse(tunnel, "mismatch", told, "", name, description.get(name, "?"))


async def _refuse_all(tunnels: dict[int, Tunnel], code: str, message: str) -> None:
    for tunnel in tunnels.values():
        await refuse(tunnel, code, message, "try again")


async def _answer(engine: EngineProcess, tunnels: dict[int, Tunnel]) -> None:
    """Takes part in one query after another until the parties go away."""
    while True:
        for tunnel in tunnels.values():
            tunnel.allow(engine.allowance.query_bytes)
        await engine.query()
