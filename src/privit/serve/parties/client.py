"""The client: holds the image, opens the answer, and learns nothing of the weights beyond it.

with connect(Path("out/client"), "127.0.0.1:9000") as client:
    print(client.predict("cat.png").class_name)
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from privit.artifact import Public, load_artifact
from privit.cost.network import Network
from privit.data.images import Picture, preprocess
from privit.errors import ConnectionFailed, PrivitError, RequestError
from privit.program.choices import batch_for
from privit.serve.engine.process import EngineDied, EngineProcess
from privit.serve.engine.protocols import CLIENT, SERVER, Protocol
from privit.serve.parties.health import ask_health, client_hello, health
from privit.serve.parties.helper import join_helper
from privit.serve.parties.limits import engines_here
from privit.serve.parties.prediction import Cost, Prediction, prediction_of
from privit.serve.parties.server import check_protocol
from privit.serve.parties.watching import Watcher, watching
from privit.serve.wire import handshake
from privit.serve.wire.addresses import parse_address, part_of, rotated, state_folder
from privit.serve.wire.dial import dial
from privit.serve.wire.frames import STARTING, RemoteError
from privit.serve.wire.gate import refuse
from privit.serve.wire.meter import Counts
from privit.serve.wire.shaping import fine_loop
from privit.serve.wire.tunnel import Tunnel

__all__ = ["Client", "Cost", "Patience", "Prediction", "connect", "health"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """How long a client waits, in seconds."""

    connect_seconds: float = 10.0
    queue_seconds: float = 600.0
    setup_seconds: float = 300.0
    query_seconds: float = 3600.0


def connect(
    model: Path,
    server: str,
    protocol: str = "cheetah",
    certs: Path | None = None,
    helper: str | None = None,
    network: Network | None = None,
    patience: Patience | None = None,
    state: Path | None = None,
    tell: Callable[[str], None] | None = None,
    watcher: Watcher[Cost] | None = None,
    batch: int = 1,
) -> Client:
    """An open session with the server at HOST:PORT, for the artifact's client/ folder.

    Args:
        certs: this client's folder from `privit certs`; needed unless the server is on loopback.
        helper: HOST:PORT of the third party of aby3; one that will not collude with the server.
        network: delay and bandwidth put on the connection, for measurements.
        state: folder of the engine's log file; the user's state directory unless given.
        tell: called with what the session waits for, where it has to wait.
        watcher: told how much has been sent, and what, while the session works.
        batch: how many images each query of the session holds.
    """
    found = check_protocol(protocol, helper)
    patience = patience or Patience()
    return Client(Path(model), server, found, certs, helper, network, patience, state, tell, watcher, batch)


class Client:
    """An open session; a context manager, usable from one thread at a time."""

    def __init__(
        self,
        model: Path,
        server: str,
        protocol: Protocol,
        certs: Path | None,
        helper: str | None,
        network: Network | None,
        patience: Patience,
        state: Path | None = None,
        tell: Callable[[str], None] | None = None,
        watcher: Watcher[Cost] | None = None,
        batch: int = 1,
    ):
        self._model = part_of(model, "client")
        artifact = load_artifact(self._model)
        self.public: Public = artifact.public
        self._plan_hash = artifact.plan.hash()
        self.batch = batch_for(protocol.name, batch).images
        self._server, self._protocol, self._certs, self._helper = server, protocol, certs, helper
        self._network, self._patience, self._tell = network, patience, tell or (lambda _: None)
        self._state = state or state_folder() / "client"
        self._watcher: Watcher[Cost] = watcher or Watcher()
        self._tunnels: list[Tunnel] = []
        self._engine: EngineProcess | None = None
        self._queries = 0
        self._loop = fine_loop() if network else asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="privit-client", daemon=True)
        self._thread.start()
        try:
            self.setup: Cost = self._call(self._open())
        except BaseException:
            self.close()
            raise

    @property
    def private(self) -> bool:
        """Whether no single party can see another's secret under this session's protocol."""
        return self._protocol.private

    def predict(self, image: Picture) -> Prediction:
        """Class and probabilities of one image: a file or its bytes, a Pillow image or 8-bit (H, W[, C]).

        Without a guard, an answer that this model cannot have given, as far as its public ranges say, is
        refused; with one, it is given with `inside` False.
        """
        return self.predict_batch([image])[0]

    def predict_batch(self, images: Sequence[Picture]) -> list[Prediction]:
        """Predictions of at most `batch` images in one query; a session for more costs that whatever it gets.

        Fewer are filled up with the last one again, which the server cannot see.
        """
        if not 1 <= len(images) <= self.batch:
            raise RequestError(
                f"{len(images)} images were given, but the queries of this session hold 1 to {self.batch}",
                "give as many, or use predict_many",
            )
        pixels = [preprocess(image, self.public.preprocessing) for image in images]
        filled = pixels + pixels[-1:] * (self.batch - len(pixels))
        answers, cost = self._call(self._query(np.stack(filled)))
        return [prediction_of(self.public, answers[i], cost, len(pixels)) for i in range(len(pixels))]

    def predict_many(self, images: Iterable[Picture], batch: int | None = None) -> Iterator[Prediction]:
        """Predictions of several images, so many in each query, as they come.

        A batch other than this session's opens another session in its place, whose set-up is paid then.
        """
        if batch is not None and batch != self.batch:
            self._call(self._reopen(batch))
        left = iter(images)
        while together := list(islice(left, self.batch)):
            yield from self.predict_batch(together)

    def close(self) -> None:
        """Ends the session and this side's engine; safe to call twice."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(PrivitError, OSError):
            self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs `work` on the session's event loop; Ctrl-C here cancels it there."""
        if self._loop.is_closed():
            work.close()
            raise ConnectionFailed("this session is closed", "connect again")
        future: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    async def _open(self) -> Cost:
        started = time.monotonic()
        # A server that is not there, refuses us or serves another plan is found out before the long compile.
        offered = await ask_health(
            self._server, self._certs, self._patience.connect_seconds, self._wait_for_start, self.batch
        )
        for name, mine in (("protocol", self._protocol.name), ("plan", self._plan_hash)):
            if offered[name] != mine:
                raise handshake.mismatch(name, offered[name], mine, str(self._model))
        log_file = rotated(self._state / "engine.log")
        engines = engines_here(parse_address(self._server)[0], self._protocol.parties)
        self._engine = await EngineProcess.start(
            self._model, self._protocol.name, "client", log_file, engines, self.batch
        )
        tunnel = await dial(
            self._server, self._certs, "server", self._patience.connect_seconds, self._network
        )
        tunnel.on_sent = self._watcher.sent
        self._tunnels.append(tunnel)
        # Attached first: the server's engine may reach for ours right after the welcome.
        await tunnel.attach(
            self._engine.socket_of(CLIENT),
            self._engine.socket_of(SERVER),
            self._engine.allowance.setup_bytes,
        )
        await tunnel.send("hello", **client_hello("query", self._engine.description))
        welcome = await self._welcome(tunnel)
        handshake.check(welcome["description"], self._engine.description, str(self._model))
        if self._helper is not None:
            patience = self._patience.setup_seconds
            joining = join_helper(self._helper, self._certs, welcome["token"], CLIENT, self._engine, patience)
            self._tunnels.append(await tunnel.guard(joining))
        work = self._engine.open(self._protocol.parties, welcome["token"], self._patience.query_seconds)
        nothing = (Counts(), Counts())
        async with watching(self._watcher, "setup", lambda: self._cost(nothing, started)):
            await self._guard(work, self._patience.setup_seconds)
        return self._cost(nothing, started)

    async def _reopen(self, batch: int) -> None:
        """Another session for another batch; its set-up is the one that `setup` tells of."""
        images = batch_for(self._protocol.name, batch).images
        await self._close()
        self.batch, self._queries = images, 0
        try:
            self.setup = await self._open()
        except BaseException:
            await self._close()
            raise

    def _wait_for_start(self) -> float:
        self._tell(f"the server at {self._server} is still starting: waiting for it")
        return self._patience.queue_seconds

    async def _welcome(self, tunnel: Tunnel) -> dict[str, Any]:
        assert self._engine is not None
        try:
            while (message := await tunnel.receive(self._patience.queue_seconds))["type"] == "wait":
                if message["position"] != STARTING:
                    self._tell(f"every session of {self._server} is taken: in line at {message['position']}")
        except RemoteError as error:
            if error.code == "mismatch":
                mine = self._engine.description.get(error.name, "?")
                raise handshake.mismatch(error.name, error.value, mine, str(self._model)) from None
            raise
        if message["type"] != "welcome":
            raise ConnectionFailed("the server answered with something other than a welcome")
        return message

    async def _query(self, pixels: np.ndarray) -> tuple[np.ndarray, Cost]:
        started, before = time.monotonic(), self._sent()
        if self._engine is None or not self._tunnels:
            raise ConnectionFailed("this session is closed", "connect again")
        tunnel = self._tunnels[0]
        try:
            for each in self._tunnels:
                each.allow(self._engine.allowance.query_bytes)
            await tunnel.send("query", number=self._queries + 1)
            message = await tunnel.receive(self._patience.setup_seconds)
            if message["type"] != "go" or message["number"] != self._queries + 1:
                raise ConnectionFailed("the server answered with something other than go")
            self._queries += 1
            async with watching(self._watcher, "query", lambda: self._cost(before, started)):
                answer, _ = await self._guard(self._engine.query(pixels), self._patience.query_seconds)
        except BaseException as error:
            # Half a protocol run cannot be taken up again.
            if isinstance(error, EngineDied):
                await refuse(tunnel, "engine", "the client's engine stopped during this session")
            await self._close()
            raise
        shape = (self.batch, len(self.public.class_names) + self.public.guard)
        if answer is None or answer.size != math.prod(shape):
            raise AssertionError("the engine gave no logits")
        return answer.reshape(shape), self._cost(before, started)

    async def _guard(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        for tunnel in self._tunnels:
            work = tunnel.guard(work, seconds)
        return await work

    def _sent(self) -> tuple[Counts, Counts]:
        ours = theirs = Counts()
        for tunnel in self._tunnels:
            sent, received = tunnel.counts()
            ours, theirs = ours + sent, theirs + received
        return ours, theirs

    def _cost(self, before: tuple[Counts, Counts], started: float) -> Cost:
        ours, theirs = (now - then for now, then in zip(self._sent(), before, strict=True))
        # With a helper, what the others send each other is not seen here: the client's own part is given.
        most = ours if self._helper is not None else theirs
        return Cost(
            max(ours.engine_bytes, most.engine_bytes),
            max(ours.actions, most.actions),
            ours.wire_bytes + theirs.wire_bytes,
            time.monotonic() - started,
        )

    async def _close(self) -> None:
        tunnels, self._tunnels = self._tunnels, []
        engine, self._engine = self._engine, None
        for tunnel in tunnels[:1]:
            with contextlib.suppress(ConnectionFailed):
                await tunnel.send("bye")
        for tunnel in tunnels:
            await tunnel.close()
        if engine is not None:
            await engine.stop()
