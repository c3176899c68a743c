"""Delay and bandwidth of a network, put on the tunnel between two processes of one machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from privit.cost.network import Network

COARSE_SECONDS = 0.0015
"""The event loop sleeps in whole milliseconds: what is left of a wait is spent in naps."""
NAP_SECONDS = 1e-4
"""Naps leave the processor to the parties; a loop that spins would take one of two cores from them."""
QUEUE_FRAMES = 4096


class ShapedLine:
    """One direction of a shaped line: what goes in comes out in order, later, not faster than the line."""

    def __init__(self, network: Network, deliver: Callable[[bytes], Awaitable[None]]):
        self.network = network
        self._deliver = deliver
        self._free_at = 0.0
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_FRAMES)

    async def put(self, data: bytes) -> None:
        """Hands `data` to the line; waits only where the line is full."""
        start = max(time.monotonic(), self._free_at)
        self._free_at = start + len(data) / self.network.bytes_per_second
        await self._queue.put((self._free_at + self.network.one_way_seconds, data))

    async def run(self) -> None:
        """Delivers until cancelled."""
        while True:
            due, data = await self._queue.get()
            await _sleep_until(due)
            await self._deliver(data)


async def _sleep_until(due: float) -> None:
    while (left := due - time.monotonic()) > 0:
        if left > 2 * COARSE_SECONDS:
            await asyncio.sleep(left - COARSE_SECONDS)
        else:
            time.sleep(min(left, NAP_SECONDS))
            await asyncio.sleep(0)
