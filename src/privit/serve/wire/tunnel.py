"""One connection between two parties that carries control messages and the engine's link in both directions.

    engine -> peer socket -> tunnel == TLS == tunnel -> engine's own socket -> engine

The engine (brpc) listens on a Unix socket in a folder that only this user can enter, and reaches the
other party through a second Unix socket there, on which the tunnel listens. No engine port is ever
open to the network or to other users of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from privit.cost.network import Network
from privit.errors import ConnectionFailed
from privit.serve.wire import refusals
from privit.serve.wire.channel import EngineChannel
from privit.serve.wire.frames import (
    DATA_LIMIT,
    HEADER,
    Frame,
    FrameError,
    Kind,
    RemoteError,
    decode_message,
    encode_message,
    pack,
    read_frames,
)
from privit.serve.wire.meter import Counts
from privit.serve.wire.shaping import ShapedLine

CHANNEL_LIMIT = 32
PENDING_MESSAGES = 64
ENGINE_WAIT_SECONDS = 120.0
Result = TypeVar("Result")


class SilentPeer(ConnectionFailed):
    """The other side did not answer in time."""


class TooManyBytes(FrameError):
    """The other side's engine sent more than the program can need."""


class Tunnel:
    """Frames of one connection; `receive` gives control messages, `attach` lets the engine through.

    Args:
        first: whether this side numbers its channels evenly (the party that accepted) or oddly.
        network: delay and bandwidth put on both directions, for measurements; `shape` puts others.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        first: bool,
        network: Network | None = None,
    ):
        self._reader, self._writer = reader, writer
        self._next_channel = 0 if first else 1
        self._own_parity = self._next_channel
        self._channels: dict[int, EngineChannel] = {}
        self._engine_socket: Path | None = None
        self._allowed_bytes = self._left_bytes = math.inf
        self._listener: asyncio.AbstractServer | None = None
        self._messages: asyncio.Queue[dict[str, Any] | ConnectionFailed] = asyncio.Queue(PENDING_MESSAGES)
        self._sent_wire = self._received_wire = 0
        self._closed_ours = self._closed_theirs = Counts()
        self._outward = ShapedLine(network, self._write) if network else None
        self._inward = ShapedLine(network, self._handle) if network else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: ConnectionFailed | None = None
        self.goodbye = False
        """Whether the other side has said that it leaves."""
        self._broken = asyncio.Event()
        self.on_sent: Callable[[bytes], None] | None = None  # told every byte that goes out
        self.called = asyncio.Event()  # the other party's engine has wanted to reach ours

    def start(self) -> None:
        """Begins to read frames; must be called inside the event loop."""
        self.spawn(self._pump())
        for line in (self._outward, self._inward):
            if line is not None:
                self.spawn(line.run())

    def shape(self, network: Network) -> None:
        """Puts another network on a tunnel that has been shaped from the start."""
        for line in (self._outward, self._inward):
            if line is not None:
                line.network = network

    async def attach(self, engine_socket: Path, peer_socket: Path, allowed_bytes: float = math.inf) -> None:
        """Connects the engine: it listens on `engine_socket` and finds the other party at `peer_socket`.

        The other party must not learn before this that it may open: its engine is then refused. Its engine
        may send `allowed_bytes`, and what `allow` adds.
        """
        self._allowed_bytes = self._left_bytes = allowed_bytes
        self._engine_socket = engine_socket
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(self._next_of_ours, str(peer_socket))

    def allow(self, more_bytes: float) -> None:
        """Lets the other party's engine send so much more than it was allowed before."""
        self._allowed_bytes += more_bytes
        self._left_bytes += more_bytes

    async def send(self, kind: str, **fields: Any) -> None:
        """Sends one control message."""
        await self._put(pack(Kind.CONTROL, 0, encode_message(kind, **fields)))

    async def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next control message; raises what the other side reports, its going away, or its silence."""
        if self._messages.empty() and self._failure is not None:
            raise self._failure
        try:
            item = await asyncio.wait_for(self._messages.get(), seconds)
        except TimeoutError:
            raise SilentPeer(f"the other side said nothing for {seconds:g} seconds") from None
        if isinstance(item, ConnectionFailed):
            raise item
        return item

    async def guard(self, work: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """The result of `work`; cancels it if the other side fails first or `seconds` pass."""
        task, broken = asyncio.ensure_future(work), asyncio.ensure_future(self._broken.wait())
        try:
            await asyncio.wait({task, broken}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if self._failure is not None:
                raise self._failure
            raise SilentPeer(f"no result within {seconds:g} seconds")
        finally:
            for waiting in (task, broken):
                waiting.cancel()
            await asyncio.gather(task, broken, return_exceptions=True)

    def counts(self) -> tuple[Counts, Counts]:
        """What this party and what the other party has sent so far."""
        ours, theirs = self._closed_ours, self._closed_theirs
        for channel in self._channels.values():
            part = Counts(0, channel.meter.engine_bytes, channel.meter.actions)
            ours, theirs = (ours + part, theirs) if channel.ours else (ours, theirs + part)
        return ours + Counts(self._sent_wire), theirs + Counts(self._received_wire)

    async def wait_for_end(self, seconds: float) -> None:
        """Returns when the other side has hung up, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._broken.wait(), seconds)

    async def close(self) -> None:
        """Ends every connection; safe to call twice."""
        self._fail(ConnectionFailed("the connection was closed"))
        if self._listener is not None:
            self._listener.close()
        current = asyncio.current_task()
        waiting = [task for task in self._tasks if task is not current]
        for task in waiting:
            task.cancel()
        for channel in list(self._channels.values()):
            channel.abort()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._writer.drain(), 1.0)
        self._writer.close()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._writer.wait_closed(), 1.0)
        await asyncio.gather(*waiting, return_exceptions=True)

    def spawn(self, work: Awaitable[None]) -> None:
        """Runs `work` beside everything else; its failure is the tunnel's."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(
                error if isinstance(error, ConnectionFailed) else ConnectionFailed("the tunnel failed")
            )

    async def _put(self, data: bytes) -> None:
        if self._outward is not None:
            await self._outward.put(data)
        else:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        self._send(data)
        await self._drain()

    def _send(self, data: bytes) -> None:
        self._sent_wire += len(data)
        if self.on_sent is not None:
            self.on_sent(data)
        self._writer.write(data)

    async def _pump(self) -> None:
        """Reads frames until the connection ends; whatever ends it reaches `receive` as one error."""
        failure = ConnectionFailed("the other side closed the connection")
        try:
            async for frame in read_frames(self._reader):
                self._received_wire += HEADER.size + len(frame.payload)
                if self._inward is not None:
                    await self._inward.put(pack(frame.kind, frame.channel, frame.payload))
                else:
                    await self._handle_frame(frame)
        except ConnectionFailed as error:
            failure = error
        except OSError as error:
            failure = refusals.broken(error)
        self._fail(failure)

    async def _handle(self, data: bytes) -> None:
        frame = Frame(Kind(data[0]), int.from_bytes(data[1:5], "big"), data[9:])
        try:
            await self._handle_frame(frame)
        except ConnectionFailed as error:
            self._fail(error)

    def _fail(self, failure: ConnectionFailed) -> None:
        """Keeps the first failure, and wakes whoever waits for a message or for the engine."""
        if self._failure is None:
            self._failure = failure
            self._broken.set()
            with contextlib.suppress(asyncio.QueueFull):
                self._messages.put_nowait(failure)

    async def _handle_frame(self, frame: Frame) -> None:
        if frame.kind is Kind.CONTROL:
            if self._messages.full():
                raise FrameError("the other side sent more control messages than it may")
            message = decode_message(frame.payload)
            if message["type"] == "error":
                raise RemoteError(message)
            self.goodbye |= message["type"] == "bye"
            self._messages.put_nowait(message)
        elif frame.kind is Kind.OPEN:
            await self._open(frame.channel)
        elif frame.kind is Kind.DATA:
            await self._deliver(frame)
        elif (channel := self._channels.get(frame.channel)) is not None:
            channel.close()

    async def _deliver(self, frame: Frame) -> None:
        self._left_bytes -= len(frame.payload)
        if self._left_bytes < 0:
            raise TooManyBytes(
                f"the other side sent more than the {self._allowed_bytes / 1e6:.0f} MB "
                "of engine messages that this program can need"
            )
        channel = self._channels.get(frame.channel)
        if channel is not None:  # else closed on this side while the other's bytes were under way
            await channel.deliver(frame.payload)

    async def _open(self, number: int) -> None:
        """The other party's engine wants to reach ours."""
        if self._engine_socket is None or number % 2 == self._own_parity or number in self._channels:
            raise FrameError("the other side opened an engine connection where none was expected")
        if len(self._channels) >= CHANNEL_LIMIT:
            raise FrameError(f"the other side opened more than {CHANNEL_LIMIT} engine connections")
        self.called.set()
        await _connect_engine(self._engine_socket, EngineChannel(self, number, ours=False))

    def _next_of_ours(self) -> EngineChannel:
        """A channel for a connection with which our engine wants to reach the other party's."""
        number = self._next_channel
        self._next_channel += 2
        return EngineChannel(self, number, ours=True)

    def joined(self, channel: EngineChannel) -> None:
        """An engine connection is there; for one that our engine opened, the other side opens its own."""
        if self._failure is not None:
            channel.abort()
            return
        self._channels[channel.number] = channel
        if channel.ours:
            self._hand_on(pack(Kind.OPEN, channel.number))

    def carry(self, channel: EngineChannel, data: bytes) -> Awaitable[None] | None:
        """Sends an engine's bytes to the other side; what to wait for where that cannot take more."""
        return self._hand_on(pack(Kind.DATA, channel.number, data))

    def left(self, channel: EngineChannel) -> None:
        """An engine connection has ended: says so, and keeps what it counted."""
        if self._channels.get(channel.number) is not channel:
            return
        del self._channels[channel.number]
        part = Counts(0, channel.meter.engine_bytes, channel.meter.actions)
        if channel.ours:
            self._closed_ours += part
        else:
            self._closed_theirs += part
        waiting = self._hand_on(pack(Kind.CLOSE, channel.number))
        if waiting is not None:
            self.spawn(waiting)

    def _hand_on(self, data: bytes) -> Awaitable[None] | None:
        """Sends without waiting where that is possible."""
        if self._failure is not None:
            return None
        if self._outward is not None:
            return None if self._outward.put_at_once(data) else self._outward.put(data)
        self._send(data)
        return self._caught_up() if self._writer.transport.get_write_buffer_size() > DATA_LIMIT else None

    async def _caught_up(self) -> None:
        # A connection that has ended is reported by the side that reads, which may know why.
        with contextlib.suppress(ConnectionFailed):
            await self._drain()

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionFailed("the other side closed the connection") from error


async def _connect_engine(path: Path, channel: EngineChannel) -> None:
    """Connects the channel to our engine, which may still be starting."""
    deadline = asyncio.get_running_loop().time() + ENGINE_WAIT_SECONDS
    while True:
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: channel, str(path))
            return
        except (FileNotFoundError, ConnectionRefusedError):
            if asyncio.get_running_loop().time() > deadline:
                raise ConnectionFailed("the engine on this side did not start in time") from None
            await asyncio.sleep(0.02)
