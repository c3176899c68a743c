"""A shaped line delays what it was told to, even by less than a millisecond.

Time is counted and not waited for, so that a busy machine cannot make a test late.
"""

from __future__ import annotations

import asyncio
import selectors

import pytest

from privit.cost.network import Network
from privit.serve.wire.shaping import ShapedLine, run_finely


class CountingSelector(selectors.SelectSelector):
    """Adds up what it is asked to wait, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # A loop that never moved would ask for the same rest of a rounded time again and again.
        self.seconds += max(timeout or 0.0, 1e-9)
        return super().select(0)


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only where it would have waited."""

    def __init__(self) -> None:
        self._counting = CountingSelector()
        super().__init__(self._counting)

    def time(self) -> float:
        return self._counting.seconds


async def arrivals(network: Network, sizes: list[int]) -> list[float]:
    """When messages arrive that are all sent at once, in seconds from then."""
    loop = asyncio.get_running_loop()
    found: list[float] = []
    done = asyncio.Event()
    started = loop.time()

    async def deliver(data: bytes) -> None:
        found.append(loop.time() - started)
        if len(found) == len(sizes):
            done.set()

    line = ShapedLine(network, deliver)
    running = asyncio.ensure_future(line.run())
    for size in sizes:
        await line.put(b"x" * size)
    await done.wait()
    running.cancel()
    return found


def counted(network: Network, sizes: list[int]) -> list[float]:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(arrivals(network, sizes))


def test_a_delay_of_half_a_millisecond_is_half_a_millisecond() -> None:
    assert counted(Network(1.0), [1]) == pytest.approx([0.5e-3], abs=1e-6)


def test_messages_in_a_row_share_the_delay_and_add_up_their_bytes() -> None:
    # 1,000 bytes at 4 Mbit/s take 2 ms, after half a millisecond's delay.
    assert counted(Network(1.0, 4.0), [1000, 1000]) == pytest.approx([2.5e-3, 4.5e-3], abs=1e-6)


def test_a_fine_loop_asks_the_kernel_for_less_than_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    # epoll would be asked for whole milliseconds: twice this delay.
    asked: list[float] = []
    select = selectors.SelectSelector.select

    def recorded(self: selectors.SelectSelector, timeout: float | None = None) -> object:
        asked.append(timeout or 0.0)
        return select(self, timeout)

    monkeypatch.setattr(selectors.SelectSelector, "select", recorded)
    run_finely(arrivals(Network(1.0), [1]))
    assert 0 < max(asked) <= 0.5e-3
