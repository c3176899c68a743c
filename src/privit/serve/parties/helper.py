"""The neutral third party of aby3: computes on shares that tell it nothing while it colludes with nobody."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privit.errors import ConnectionFailed, PrivitError
from privit.serve.engine.pool import EnginePool
from privit.serve.engine.process import EngineDied, EngineProcess
from privit.serve.engine.protocols import CLIENT, HELPER, SERVER
from privit.serve.parties.limits import Limits
from privit.serve.wire import handshake
from privit.serve.wire.addresses import log_to, part_of, state_folder
from privit.serve.wire.dial import dial
from privit.serve.wire.frames import log_reason
from privit.serve.wire.gate import Gate, refuse
from privit.serve.wire.tls import Peer, check_role
from privit.serve.wire.tunnel import Tunnel

log = logging.getLogger("privit.helper")
PARTIES, RANK = 3, HELPER
PROTOCOL = "aby3"
TOKEN_CHARACTERS = 32
ROLES = {SERVER: "server", CLIENT: "client"}


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
    address: str, certs: Path | None, token: str, rank: int, engine: EngineProcess, seconds: float = 30.0
) -> Tunnel:
    """A tunnel to the helper, attached to this side's engine; both parties show the same one-time token."""
    tunnel = await dial(address, certs, "helper", seconds)
    try:
        await tunnel.send(
            "hello",
            version=handshake.WIRE_VERSION,
            purpose="help",
            description=engine.description,
            token=token,
            rank=rank,
        )
        await tunnel.attach(engine.socket_of(rank), engine.socket_of(RANK))
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
        self._pool = EnginePool(folder, PROTOCOL, "helper", state / "engine.log")
        self._log_handler = log_to(state / "helper.log")
        self._waiting: dict[str, tuple[int, Tunnel, asyncio.Future[None]]] = {}
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
        different = handshake.first_difference(self.description, hello["description"])
        if different is not None:
            log.warning("refused a %s: its %s differs", ROLES[rank], different)
            await refuse(
                tunnel,
                "mismatch",
                f"the helper's {different} differs",
                "",
                different,
                self.description[different],
            )
            return
        first = self._waiting.pop(token, None)
        if first is None:
            await self._wait_for_other(tunnel, token, rank)
        elif first[0] == rank:
            first[2].cancel()
            await refuse(tunnel, "protocol", "two parties claimed the same place in one session")
        else:
            tunnels = {first[0]: first[1], rank: tunnel}
            try:
                await self._session(tunnels, token)
            finally:
                if not first[2].done():
                    first[2].set_result(None)

    async def _wait_for_other(self, tunnel: Tunnel, token: str, rank: int) -> None:
        if len(self._waiting) >= self._limits.queue + self._limits.sessions:
            await refuse(tunnel, "busy", "too many sessions wait for their second party", "try again later")
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (rank, tunnel, done)
        try:
            await tunnel.guard(_until(done))
        finally:
            self._waiting.pop(token, None)

    async def _session(self, tunnels: dict[int, Tunnel], token: str) -> None:
        engine = await self._pool.take()
        try:
            for rank, tunnel in tunnels.items():
                await tunnel.attach(engine.socket_of(RANK), engine.socket_of(rank))
            work = engine.open(PARTIES, token, self._limits.idle_seconds + self._limits.query_seconds)
            await tunnels[SERVER].guard(tunnels[CLIENT].guard(work, self._limits.setup_seconds))
            self._pool.refill()
            log.info("a session is open")
            await tunnels[SERVER].guard(tunnels[CLIENT].guard(_answer(engine)))
        except EngineDied as error:
            log.error("%s; %s", error.message, error.hint)
            for tunnel in tunnels.values():
                await refuse(tunnel, "engine", "the helper's engine stopped during this session", "try again")
        except (ConnectionFailed, PrivitError) as error:
            log.info("a session ended: %s", log_reason(error))
        finally:
            await engine.stop()


async def _answer(engine: EngineProcess) -> None:
    """Takes part in one query after another until the parties go away."""
    while True:
        await engine.query()


async def _until(done: asyncio.Future[None]) -> None:
    await done
