"""One connection of this side's engine, joined to the tunnel without a task between them.

A small message passes here many thousand times a query, so what arrives is handed on at once, in the same
turn of the event loop; only where the tunnel cannot take more does a task wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol as Shape

from privit.serve.wire.meter import PushMeter


class Carrier(Shape):
    """What a channel needs of its tunnel."""

    def joined(self, channel: EngineChannel) -> None:
        """The channel's engine is there."""

    def carry(self, channel: EngineChannel, data: bytes) -> Awaitable[None] | None:
        """Takes the engine's bytes; gives what to wait for before there may be more, if anything."""

    def left(self, channel: EngineChannel) -> None:
        """The channel's engine has gone, and all that it sent was taken."""

    def spawn(self, work: Awaitable[None]) -> None:
        """Runs what has to wait."""


class EngineChannel(asyncio.Protocol):
    """One engine connection. `ours` was opened by this side's engine: its outward bytes are our pushes."""

    def __init__(self, tunnel: Carrier, number: int, ours: bool):
        self.number, self.ours, self.meter = number, ours, PushMeter()
        self._tunnel = tunnel
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._waits = self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The engine is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._tunnel.joined(self)

    def data_received(self, data: bytes) -> None:
        """Hands the engine's bytes to the tunnel; reads no more while it is full."""
        if self.ours:
            self.meter.feed(data)
        waiting = self._tunnel.carry(self, data)
        if waiting is not None:
            assert self._transport is not None
            self._transport.pause_reading()
            self._waits = True
            self._tunnel.spawn(self._go_on(waiting))

    async def _go_on(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        finally:
            self._waits = False
        if self._gone:
            self._tunnel.left(self)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """The engine has gone; what waits to be carried goes first."""
        self._gone = True
        self._writable.set()
        if not self._waits:
            self._tunnel.left(self)

    def pause_writing(self) -> None:
        """The engine reads slower than the other party sends."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The engine has caught up."""
        self._writable.set()

    async def deliver(self, data: bytes) -> None:
        """Gives the other party's bytes to the engine, no faster than it reads."""
        if not self.ours:
            self.meter.feed(data)
        if self._transport is not None and not self._gone:
            self._transport.write(data)
            if not self._writable.is_set():
                await self._writable.wait()

    def close(self) -> None:
        """Ends the connection after what was written to it."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()
