"""Asking a server how it is, before anything is compiled for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privit.errors import ConnectionFailed
from privit.serve.engine.protocols import CLIENT
from privit.serve.wire import handshake
from privit.serve.wire.dial import dial


def health(server: str, certs: Path | None = None, seconds: float = 10.0) -> dict[str, Any]:
    """What a server says about itself: protocol, plan, sessions, their limit and clients in line."""
    return asyncio.run(ask_health(server, certs, seconds))


def client_hello(purpose: str, description: dict[str, str]) -> dict[str, Any]:
    """The fields of a client's first message."""
    return {
        "version": handshake.WIRE_VERSION,
        "purpose": purpose,
        "description": description,
        "token": "",
        "rank": CLIENT,
    }


async def ask_health(
    server: str,
    certs: Path | None,
    seconds: float,
    on_starting: Callable[[], float] | None = None,
    images: int = 1,
) -> dict[str, Any]:
    """What the server says of itself; `on_starting` gives the seconds that it may take to start.

    One that does not take queries of so many images refuses. A server from before there were batches does
    not look at that: its program will differ.
    """
    asked = {} if images == 1 else {handshake.BATCH: str(images)}
    tunnel = await dial(server, certs, "server", seconds)
    try:
        await tunnel.send("hello", **client_hello("health", asked))
        message = await tunnel.receive(seconds)
        if message["type"] == "wait":
            if on_starting is None:
                raise ConnectionFailed(
                    f"the server at {server} is still starting", "it says so when it is ready: ask again then"
                )
            message = await tunnel.receive(on_starting())
    finally:
        await tunnel.close()
    if message.pop("type") != "health":
        raise ConnectionFailed("the server answered with something other than its health")
    return message
