"""The server's session places and the line of clients that wait for one."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from privit.errors import PrivitError
from privit.serve.parties.limits import Limits
from privit.serve.wire.tls import Peer
from privit.serve.wire.tunnel import Tunnel

Result = TypeVar("Result")


class Refused(PrivitError):
    """An orderly end of a connection, with the code that the client is told, and what differs, if it does."""

    def __init__(self, code: str, message: str, hint: str = "", name: str = "", value: str = ""):
        super().__init__(message, hint)
        self.code, self.name, self.value = code, name, value


class Places:
    """First come, first served; whoever waits is told so and may go away at any time.

    Nobody holds more than its part: a certificate `places_each`, and where there are none an address its
    share of all places. On loopback that share only stops a program that runs away: whoever can reach
    the port there can have many addresses.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._free = limits.sessions
        self._line: deque[asyncio.Future[None]] = deque()
        self._held: Counter[str] = Counter()
        self._stopping = asyncio.Event()

    @property
    def running(self) -> int:
        """Places taken."""
        return self._limits.sessions - self._free

    @property
    def waiting(self) -> int:
        """Clients in line."""
        return len(self._line)

    def stop(self) -> None:
        """Sends away whoever waits, now and from now on."""
        self._stopping.set()

    @contextlib.asynccontextmanager
    async def place(self, tunnel: Tunnel, peer: Peer) -> AsyncIterator[None]:
        """A place for the time of the `with`, after waiting in line if all are taken."""
        with self._part_of(peer):
            if self._free:
                self._free -= 1
            else:
                await self._wait(tunnel)
            try:
                yield
            finally:
                self._leave()

    @contextlib.contextmanager
    def _part_of(self, peer: Peer) -> Iterator[None]:
        limits = self._limits
        holder, most, setting = peer.fingerprint, limits.places_each, "--places-each"
        if not peer.certified:
            all_places = limits.sessions + limits.queue
            holder, most, setting = peer.address, math.ceil(limits.address_share * all_places), "--queue"
        if self._held[holder] >= most:
            raise Refused(
                "busy",
                f"this client already has {most} of the server's places, as many as one client may have",
                f"close another session, or ask the server's owner for more: privit serve {setting}",
            )
        self._held[holder] += 1
        try:
            yield
        finally:
            self._held[holder] -= 1
            self._held += Counter()  # drops whoever holds nothing

    async def unless_stopping(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`, or a refusal if the server is told to stop before."""
        task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Refused("shutdown", "the server is shutting down", "connect again later")
        finally:
            task.cancel()
            stopping.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def _wait(self, tunnel: Tunnel) -> None:
        if len(self._line) >= self._limits.queue:
            raise Refused(
                "busy",
                f"all {self._limits.sessions} sessions are taken and {len(self._line)} clients wait",
                "try again later",
            )
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        try:
            await tunnel.send("wait", position=len(self._line))
            await tunnel.guard(self.unless_stopping(_called(ticket)))
        except BaseException:
            # A client may go in the very moment in which it is given a place: hand the place on.
            if ticket.done() and not ticket.cancelled():
                self._leave()
            elif ticket in self._line:
                self._line.remove(ticket)
            raise

    def _leave(self) -> None:
        while self._line:
            ticket = self._line.popleft()
            if not ticket.done():
                ticket.set_result(None)
                return
        self._free += 1


async def _called(ticket: asyncio.Future[None]) -> None:
    await ticket
