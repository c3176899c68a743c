"""Delay and bandwidth of a network, put on the tunnel between two processes of one machine."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from privit.cost.network import Network

QUEUE_FRAMES = 4096
Result = TypeVar("Result")


def fine_loop() -> asyncio.AbstractEventLoop:
    """An event loop that sleeps to the microsecond, as the delay of a LAN asks for.

    The usual loop waits in epoll, which knows whole milliseconds only: ten times such a delay.
    """
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def run_finely(work: Coroutine[Any, Any, Result]) -> Result:
    """Like asyncio.run, in a fine loop."""
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        return runner.run(work)


class ShapedLine:
    """One direction of a shaped line: what goes in comes out in order, later, not faster than the line."""

    def __init__(self, network: Network, deliver: Callable[[bytes], Awaitable[None]]):
        self.network = network
        self._deliver = deliver
        self._free_at = 0.0
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_FRAMES)

    async def put(self, data: bytes) -> None:
        """Hands `data` to the line; waits only where the line is full."""
        await self._queue.put((self._due(data), data))

    def put_at_once(self, data: bytes) -> bool:
        """Hands `data` to the line if that has room; whether it had."""
        if self._queue.full():
            return False
        self._queue.put_nowait((self._due(data), data))
        return True

    def _due(self, data: bytes) -> float:
        start = max(asyncio.get_running_loop().time(), self._free_at)
        self._free_at = start + len(data) / self.network.bytes_per_second
        return self._free_at + self.network.one_way_seconds

    async def run(self) -> None:
        """Delivers until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._queue.get()
            while (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            await self._deliver(data)
