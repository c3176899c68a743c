"""A shaped line delays what it was told to, even by less than a millisecond."""

from __future__ import annotations

import asyncio
import statistics
import time

from privit.cost.network import Network
from privit.serve.wire.shaping import ShapedLine, run_finely

MESSAGES = 50


async def one_way_seconds(network: Network, size: int = 1) -> float:
    arrived = asyncio.Event()

    async def deliver(data: bytes) -> None:
        arrived.set()

    line = ShapedLine(network, deliver)
    running = asyncio.ensure_future(line.run())
    found = []
    for _ in range(MESSAGES):
        started = time.monotonic()
        await line.put(b"x" * size)
        await arrived.wait()
        arrived.clear()
        found.append(time.monotonic() - started)
    running.cancel()
    return statistics.median(found)


def test_a_delay_of_half_a_millisecond_is_half_a_millisecond() -> None:
    # An event loop that waits in epoll would make it a whole one.
    assert 0.5e-3 <= run_finely(one_way_seconds(Network(1.0))) < 0.9e-3


def test_bandwidth_adds_the_time_of_the_bytes() -> None:
    # 1,000 bytes at 4 Mbit/s take 2 ms, after half a millisecond's delay.
    assert 2.5e-3 <= run_finely(one_way_seconds(Network(1.0, 4.0), 1000)) < 3.5e-3
