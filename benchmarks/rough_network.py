"""A network that delays every frame between two parties and joins and splits their bytes, at random."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from privit.errors import ConnectionFailed
from privit.serve.parties.client import connect
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import local_helper, local_server
from privit.serve.wire.addresses import parse_address
from privit.serve.wire.frames import DATA_LIMIT, Kind, pack, read_frame

Pipe = asyncio.Queue[bytes | None]


@dataclass(frozen=True)
class Roughness:
    """How a network treats what it carries; times in seconds, shares of frames between 0 and 1.

    Engine bytes (`data_seconds`) are delayed less than the frames that open a session: there are hundreds of
    times more of them.
    """

    seed: int = 0
    least_seconds: float = 0.0
    frame_seconds: float = 0.2
    data_seconds: float = 0.001
    joined: float = 0.7
    split: float = 0.3

    def delay(self, rng: random.Random, data: bytes) -> float:
        """How much later this frame leaves than it came."""
        longest = self.data_seconds if data[0] == Kind.DATA else self.frame_seconds
        return rng.uniform(min(self.least_seconds, longest), longest)


@contextlib.contextmanager
def rough_network(target: str, roughness: Roughness) -> Iterator[str]:
    """The address at which `target` is reached over such a network, for the time of the `with`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="rough-network", daemon=True)
    thread.start()
    proxy = _Proxy(target, roughness)
    try:
        port = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
        yield f"127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass(frozen=True)
class Parties:
    """Who a session is with: the addresses as their owners gave them, `helper` for aby3 only."""

    model: Path
    protocol: str
    server: str
    helper: str | None
    state: Path

    def ask(self, roughness: Roughness, picture: np.ndarray) -> np.ndarray:
        """The logits of one query in a session of its own, over a rough network to every other party."""
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(rough_network(self.server, roughness))
            other = replace(roughness, seed=-1 - roughness.seed)
            helper = self.helper and stack.enter_context(rough_network(self.helper, other))
            client = connect(self.model, server, self.protocol, helper=helper, state=self.state)
            return np.asarray(stack.enter_context(client).predict(picture).logits)


@contextlib.contextmanager
def rough_parties(artifact: Path, state: Path, protocol: str, sessions: int) -> Iterator[Parties]:
    """A server, and for aby3 a helper with a rough network between the two, for so many clients at once."""
    limits = Limits(sessions=sessions, queue=sessions)
    with contextlib.ExitStack() as stack:
        helper = between = None
        if protocol == "aby3":
            party = stack.enter_context(local_helper(artifact, state / "helper", limits))
            helper, between = party.address, stack.enter_context(rough_network(party.address, Roughness()))
        server = stack.enter_context(
            local_server(artifact, state / "server", protocol, limits, helper=between)
        )
        yield Parties(artifact / "client", protocol, server.address, helper, state / "client")


class _Proxy:
    """Accepts, dials the target and carries frames both ways; every direction has its own random numbers."""

    def __init__(self, target: str, roughness: Roughness):
        self._target, self._roughness = target, roughness
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=DATA_LIMIT)
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._connections += 1
        name = f"{self._roughness.seed}/{self._connections}"
        ends = [writer]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.sleep(random.Random(name).uniform(0, self._roughness.frame_seconds))
            far_reader, far_writer = await asyncio.open_connection(
                *parse_address(self._target), limit=DATA_LIMIT
            )
            ends.append(far_writer)
            await asyncio.gather(
                self._carry(reader, far_writer, random.Random(f"{name}/there")),
                self._carry(far_reader, writer, random.Random(f"{name}/back")),
            )
        for end in ends:
            end.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await end.wait_closed()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random
    ) -> None:
        pipe: Pipe = asyncio.Queue(1024)
        reading = asyncio.ensure_future(_fill(pipe, reader))
        try:
            while (data := await pipe.get()) is not None:
                await asyncio.sleep(self._roughness.delay(rng, data))
                # What came while this frame waited leaves with it, and is then one piece of bytes.
                while not pipe.empty() and rng.random() < self._roughness.joined:
                    if (more := pipe.get_nowait()) is None:
                        pipe.put_nowait(None)
                        break
                    data += more
                await self._write(writer, data, rng)
            writer.write_eof()
        finally:
            reading.cancel()

    async def _write(self, writer: asyncio.StreamWriter, data: bytes, rng: random.Random) -> None:
        while len(data) > 1 and rng.random() < self._roughness.split:
            cut = rng.randrange(1, len(data))
            writer.write(data[:cut])
            await writer.drain()
            await asyncio.sleep(rng.uniform(0, self._roughness.data_seconds))
            data = data[cut:]
        writer.write(data)
        await writer.drain()


async def _fill(pipe: Pipe, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError, ConnectionFailed):
        while (frame := await read_frame(reader)) is not None:
            await pipe.put(pack(frame.kind, frame.channel, frame.payload))
    await pipe.put(None)
