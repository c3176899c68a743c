"""Somebody who looks on while a client works: how much has crossed, and the very bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

STEP_SECONDS = 0.2
"""How often a watcher hears of progress."""

Moved = TypeVar("Moved")


@dataclass(frozen=True)
class Watcher(Generic[Moved]):
    """Whom a client tells what it does, on the session's own thread; either may be left out.

    Attributes:
        moved: called with "setup" or "query" and what that has cost so far, several times a second.
        sent: called with every piece of bytes that goes to the server, as the server will see it. It runs
            between two messages of the protocol, so it must be quick.
    """

    moved: Callable[[str, Moved], None] | None = None
    sent: Callable[[bytes], None] | None = None


@contextlib.asynccontextmanager
async def watching(watcher: Watcher[Moved], work: str, cost: Callable[[], Moved]) -> AsyncIterator[None]:
    """Tells the watcher of the work in the `with`; one that fails is told no more, and stops nothing."""
    moved = watcher.moved
    if moved is None:
        yield
        return

    async def tell() -> None:
        while True:
            moved(work, cost())
            await asyncio.sleep(STEP_SECONDS)

    task = asyncio.ensure_future(tell())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
