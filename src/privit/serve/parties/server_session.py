"""One client's session on the server: a place, a worker, set-up, then one query after another."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from privit.errors import ConnectionFailed, PrivitError
from privit.serve.engine.pool import EnginePool
from privit.serve.engine.process import EngineDied, EngineProcess
from privit.serve.engine.protocols import CLIENT, SERVER, Protocol
from privit.serve.parties.helper import HelperFailed, join_helper
from privit.serve.parties.limits import Limits, QueryLedger
from privit.serve.parties.places import Places, Refused
from privit.serve.wire import handshake
from privit.serve.wire.frames import RemoteError
from privit.serve.wire.gate import refuse
from privit.serve.wire.tls import Peer
from privit.serve.wire.tunnel import SilentPeer, TooManyBytes, Tunnel

log = logging.getLogger("privit.serve")


@dataclass(frozen=True)
class ServerOptions:
    """How a server is run; `state` keeps its log files and the ledger of queries across restarts."""

    folder: Path
    port: int
    host: str = "127.0.0.1"
    protocol: str = "cheetah"
    certs: Path | None = None
    limits: Limits = field(default_factory=Limits)
    helper: str | None = None
    state: Path | None = None


@dataclass(frozen=True)
class Session:
    """A client that has been let in, and everything that serves it."""

    options: ServerOptions
    protocol: Protocol
    pool: EnginePool
    ledger: QueryLedger
    places: Places
    tunnel: Tunnel
    peer: Peer
    name: str
    asked: Mapping[str, str]
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    async def run(self) -> None:
        """Serves until the client leaves; every other end is logged and, where possible, told to it."""
        try:
            self._check_queries_left()
            async with self.places.place(self.tunnel, self.peer):
                await self._serve()
        except Refused as error:
            log.info("session %s of %s: %s", self.id, self.name, error.message)
            await refuse(self.tunnel, error.code, error.message, error.hint, error.name, error.value)
        except RemoteError as error:
            await self._end(logging.WARNING, f"the client reported {error.code}")
        except EngineDied as error:
            told = "the server's engine stopped during this session"
            await self._end(
                logging.ERROR,
                f"{error.message}; {error.hint}",
                "engine",
                told,
                "try again; the server's log says more",
            )
        except HelperFailed as error:
            await self._end(logging.WARNING, error.message, "engine", error.message, error.hint)
        except TooManyBytes as error:
            told = "this client's engine sent more than the program can need"
            await self._end(logging.WARNING, error.message, "limit", told)
        except SilentPeer as error:
            await self._end(logging.WARNING, error.message, "timeout", error.message, "connect again")
        except ConnectionFailed as error:
            await self._end(logging.WARNING, error.message)
        except PrivitError as error:
            told = "the server could not run this session"
            await self._end(logging.ERROR, error.message, "engine", told, "the server's log says why")

    async def _end(self, level: int, line: str, code: str = "", told: str = "", hint: str = "") -> None:
        log.log(level, "session %s of %s: %s", self.id, self.name, line)
        if code:
            await refuse(self.tunnel, code, told, hint)

    def _check_queries_left(self) -> None:
        """Sends a client away before the set-up that it could not use."""
        limit = self.options.limits.queries
        if limit is not None and self.ledger.asked(self.peer.fingerprint) + self.images > limit:
            raise self._no_queries_left()

    def _no_queries_left(self) -> Refused:
        limit = self.options.limits.queries
        asked = self.ledger.asked(self.peer.fingerprint)
        if limit is not None and asked < limit:
            told = f"this client has {limit - asked} of its {limit} queries left, a batch is {self.images}"
            return Refused("limit", told, "ask in smaller batches")
        return Refused(
            "limit", f"this client has asked all its {limit} queries", "ask the server's owner for more"
        )

    @property
    def images(self) -> int:
        """How many images each query of this session holds."""
        return handshake.batch_of(self.asked)

    async def _serve(self) -> None:
        # Not guarded: a worker that is being prepared goes to the next client if this one leaves.
        engine = await self.pool.take(self.images)
        helper, called = None, False
        try:
            self._check_program(engine)
            token = secrets.token_hex(16)
            limits = self.options.limits
            # Attached first: a client that has been welcomed may open at once.
            await self.tunnel.attach(
                engine.socket_of(SERVER), engine.socket_of(CLIENT), engine.allowance.setup_bytes
            )
            await self.tunnel.send("welcome", session=self.id, description=engine.description, token=token)
            if self.options.helper is None:
                await self._wait_for_engine()
                called = True
            else:
                # A client opens when the helper is ready, and that is when both have come to it.
                called = True
                joining = join_helper(
                    self.options.helper, self.options.certs, token, SERVER, engine, limits.setup_seconds
                )
                helper = await self.tunnel.guard(joining)
            work = engine.open(self.protocol.parties, token, limits.query_seconds)
            seconds = await self.tunnel.guard(work, limits.setup_seconds)
            log.info(
                "session %s of %s: open after %.1f s, worker %d", self.id, self.name, seconds, engine.pid
            )
            self.pool.refill()
            queries = await self._answer(engine, [self.tunnel, *([helper] if helper is not None else [])])
            sent, received = self.tunnel.counts()
            log.info(
                "session %s of %s: closed, %d queries, %d bytes sent, %d received",
                self.id,
                self.name,
                queries,
                sent.wire_bytes,
                received.wire_bytes,
            )
        finally:
            if helper is not None:
                await helper.close()
            # Compiling takes long: a client that never began leaves the worker to the next one.
            await (engine.stop() if called else self.pool.give_back(engine))

    def _check_program(self, engine: EngineProcess) -> None:
        """The rest of the handshake: the program of a batch is compiled when a client asks for it."""
        different = handshake.first_difference(engine.description, self.asked)
        if different is not None:
            raise Refused(
                "mismatch", f"the {different} differs", "", different, engine.description[different]
            )

    async def _wait_for_engine(self) -> None:
        """Until the client's engine reaches for ours, which a good client's does at once."""
        seconds = self.options.limits.open_seconds
        try:
            await self.tunnel.guard(self.tunnel.called.wait(), seconds)
        except SilentPeer:
            raise SilentPeer(f"no engine connection within {seconds:g} seconds of the welcome") from None

    async def _answer(self, engine: EngineProcess, tunnels: list[Tunnel]) -> int:
        """How many queries were answered before the client said goodbye."""
        limits, queries = self.options.limits, 0
        while True:
            message = await self.places.unless_stopping(self.tunnel.receive(limits.idle_seconds))
            if message["type"] == "bye":
                return queries
            if message["type"] != "query" or message["number"] != queries + 1:
                raise Refused("protocol", "a query was expected")
            left = self.ledger.take(self.peer.fingerprint, limits.queries, self.images)
            if left is None:
                raise self._no_queries_left()
            queries += 1
            for tunnel in tunnels:
                tunnel.allow(engine.allowance.query_bytes)
            await self.tunnel.send("go", number=queries, left=left)
            try:
                _, seconds = await self.tunnel.guard(engine.query(), limits.query_seconds)
            except ConnectionFailed:
                # With its answer a client may leave before our engine has heard that it arrived.
                if self.tunnel.goodbye:
                    return queries
                raise
            log.info("session %s of %s: query %d took %.2f s", self.id, self.name, queries, seconds)
