"""Delay and bandwidth of a network, put on the tunnel between two processes of one machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from privit.errors import RequestError


@dataclass(frozen=True)
class Network:
    """Round-trip time and bandwidth in each direction; zero means unshaped."""

    name: str
    rtt_ms: float
    bandwidth_mbit: float


LOOPBACK = Network("loopback", 0.0, 0.0)
# The settings of the Cheetah paper (Huang et al., USENIX Security 2022): 384 MB/s, 0.3 ms; 44 MB/s, 40 ms.
LAN = Network("lan", 0.3, 3072.0)
WAN = Network("wan", 40.0, 352.0)
NETWORKS = {network.name: network for network in (LOOPBACK, LAN, WAN)}

SPIN_SECONDS = 0.0015
"""The event loop sleeps in whole milliseconds: shorter waits are spun."""
QUEUE_FRAMES = 4096


def parse_network(text: str) -> Network:
    """The network that `lan`, `wan`, `loopback` or `RTT,BANDWIDTH` (milliseconds, Mbit/s) names."""
    if text in NETWORKS:
        return NETWORKS[text]
    try:
        rtt, bandwidth = (float(part) for part in text.split(","))
    except ValueError:
        rtt = bandwidth = -1.0
    if not (0 <= rtt < 10_000 and 0 < bandwidth < float("inf")):
        raise RequestError(
            f"the network is {text!r}, but lan, wan or RTT,BANDWIDTH was expected",
            "give milliseconds and Mbit/s, such as 40,100",
        )
    return Network(text, rtt, bandwidth)


class ShapedLine:
    """One direction of a shaped line: what goes in comes out in order, later, not faster than the line."""

    def __init__(self, network: Network, deliver: Callable[[bytes], Awaitable[None]]):
        self._delay_seconds = network.rtt_ms / 2e3
        self._bytes_per_second = network.bandwidth_mbit * 1e6 / 8 or float("inf")
        self._deliver = deliver
        self._free_at = 0.0
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_FRAMES)

    async def put(self, data: bytes) -> None:
        """Hands `data` to the line; waits only where the line is full."""
        start = max(time.monotonic(), self._free_at)
        self._free_at = start + len(data) / self._bytes_per_second
        await self._queue.put((self._free_at + self._delay_seconds, data))

    async def run(self) -> None:
        """Delivers until cancelled."""
        while True:
            due, data = await self._queue.get()
            await _sleep_until(due)
            await self._deliver(data)


async def _sleep_until(due: float) -> None:
    while (left := due - time.monotonic()) > 0:
        await asyncio.sleep(left - SPIN_SECONDS if left > 2 * SPIN_SECONDS else 0)
