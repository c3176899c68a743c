"""The client: holds the image, opens the answer, and learns nothing of the weights beyond it.

with connect(Path("out/client"), "127.0.0.1:9000") as client:
    print(client.predict("cat.png").class_name)
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from privit.artifact import Public, load_artifact
from privit.cost.network import Network
from privit.data.images import Picture, preprocess
from privit.errors import ConnectionFailed, OutsideRanges, PrivitError
from privit.program.ranges import believable, opened
from privit.serve.engine.process import EngineDied, EngineProcess
from privit.serve.engine.protocols import CLIENT, SERVER, Protocol
from privit.serve.parties.helper import join_helper
from privit.serve.parties.limits import engines_here
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

Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """How long a client waits, in seconds."""

    connect_seconds: float = 10.0
    queue_seconds: float = 600.0
    setup_seconds: float = 300.0
    query_seconds: float = 3600.0


@dataclass(frozen=True)
class Cost:
    """What was sent, measured at the tunnel.

    `sent_bytes` and `rounds` are the engine's own bytes and send actions: of the party that has more where
    there are two, of the client where there are three.
    `wire_bytes` is everything that crossed the client's tunnels in both directions, framing included.
    """

    sent_bytes: int
    rounds: int
    wire_bytes: int
    seconds: float


@dataclass(frozen=True)
class Prediction:
    """The answer to one query, in the order of the class names; only the client has it.

    `inside` says whether all values stayed in the ranges that the model was made for; outside, the answer may
    be wrong. It is None where the program has no guard.
    """

    class_name: str
    probabilities: tuple[float, ...]
    logits: tuple[float, ...]
    sent_bytes: int
    rounds: int
    wire_bytes: int
    seconds: float
    inside: bool | None = None


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
) -> Client:
    """An open session with the server at HOST:PORT, for the artifact's client/ folder.

    Args:
        certs: this client's folder from `privit certs`; needed unless the server is on loopback.
        helper: HOST:PORT of the third party of aby3; one that will not collude with the server.
        network: delay and bandwidth put on the connection, for measurements.
        state: folder of the engine's log file; the user's state directory unless given.
        tell: called with what the session waits for, where it has to wait.
        watcher: told how much has been sent, and what, while the session works.
    """
    found = check_protocol(protocol, helper)
    patience = patience or Patience()
    return Client(Path(model), server, found, certs, helper, network, patience, state, tell, watcher)


def health(server: str, certs: Path | None = None, seconds: float = 10.0) -> dict[str, Any]:
    """What a server says about itself: protocol, plan, sessions, their limit and clients in line."""
    return asyncio.run(_health(server, certs, seconds))


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
    ):
        self._model = part_of(model, "client")
        artifact = load_artifact(self._model)
        self.public: Public = artifact.public
        self._plan_hash = artifact.plan.hash()
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
        pixels = preprocess(image, self.public.preprocessing)
        answer, cost = self._call(self._query(pixels))
        logits, inside = opened(self.public, answer)
        if inside is None and not believable(self.public.ranges, logits):
            raise OutsideRanges(
                "the answer is not one that this model can give: the image took values inside it beyond the "
                "ranges that its export measured, and fixed-point numbers have overflowed",
                "ask with images like those that the model was made for; if this one is, ask its owner to "
                "export the model again with more images",
            )
        names = self.public.class_names
        shifted = np.exp(logits - logits.max())
        probabilities = shifted / shifted.sum()
        return Prediction(
            names[int(logits.argmax())],
            tuple(float(value) for value in probabilities),
            tuple(float(value) for value in logits),
            cost.sent_bytes,
            cost.rounds,
            cost.wire_bytes,
            cost.seconds,
            inside,
        )

    def predict_many(self, images: Iterable[Picture]) -> Iterator[Prediction]:
        """Predictions of several images, one after another on this session, as they come."""
        for image in images:
            yield self.predict(image)

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
        offered = await _health(
            self._server, self._certs, self._patience.connect_seconds, self._wait_for_start
        )
        for name, mine in (("protocol", self._protocol.name), ("plan", self._plan_hash)):
            if offered[name] != mine:
                raise handshake.mismatch(name, offered[name], mine, str(self._model))
        log_file = rotated(self._state / "engine.log")
        engines = engines_here(parse_address(self._server)[0], self._protocol.parties)
        self._engine = await EngineProcess.start(
            self._model, self._protocol.name, "client", log_file, engines
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
        await tunnel.send("hello", **_hello("query", self._engine.description))
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
        if answer is None or answer.shape != (len(self.public.class_names) + self.public.guard,):
            raise AssertionError("the engine gave no logits")
        return answer, self._cost(before, started)

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


def _hello(purpose: str, description: dict[str, str]) -> dict[str, Any]:
    return {
        "version": handshake.WIRE_VERSION,
        "purpose": purpose,
        "description": description,
        "token": "",
        "rank": CLIENT,
    }


async def _health(
    server: str, certs: Path | None, seconds: float, on_starting: Callable[[], float] | None = None
) -> dict[str, Any]:
    """What the server says of itself; `on_starting` gives the seconds that it may take to start."""
    tunnel = await dial(server, certs, "server", seconds)
    try:
        await tunnel.send("hello", **_hello("health", {}))
        message = await tunnel.receive(seconds)
        if message["type"] == "wait":
            if on_starting is None:
                raise ConnectionFailed(
                    f"the server at {server} is still starting", "it says so when it is ready: ask again then"
                )
            message = await tunnel.receive(on_starting())
    finally:
        await tunnel.close()
    if message.pop("type") != "health":
        raise ConnectionFailed("the server answered with something other than its health")
    return message
