"""One session between real engine processes through a shaped tunnel: bytes, rounds and seconds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privit.artifact import load_artifact
from privit.cost.network import LOOPBACK, Network
from privit.cost.network import network as named_network
from privit.serve.engine.engine import RANKS
from privit.serve.engine.process import EngineProcess
from privit.serve.engine.protocols import CLIENT, Protocol, protocol
from privit.serve.wire.addresses import part_of
from privit.serve.wire.frames import DATA_LIMIT
from privit.serve.wire.meter import Counts
from privit.serve.wire.shaping import run_finely
from privit.serve.wire.tunnel import Tunnel

PATIENCE_SECONDS = 4 * 3600.0


class Query(NamedTuple):
    """One query: what each party sent, how long it took, the answer, and all parties' processor time."""

    counts: list[Counts]
    seconds: float
    logits: np.ndarray
    processor_seconds: float


def measure_session(
    folder: Path,
    protocol_name: str = "cheetah",
    network: Network | str = LOOPBACK,
    queries: int = 2,
    pixels: np.ndarray | None = None,
) -> dict[str, Any]:
    """What set-up and queries cost over a network, with an engine process for each party.

    It serves nobody, so it takes semi2k-benchmark, too. `sent_bytes` and `rounds` are of the last query
    and of the party that has more; random `pixels` (C, S, S) are used unless given, and several images are
    a batch in one query.
    """
    shape = named_network(network) if isinstance(network, str) else network
    run = _measure(Path(folder), protocol(protocol_name), shape, [(shape, queries)], pixels)
    return run_finely(run)[0]


def measure_queries(
    folder: Path,
    protocol_name: str,
    networks: Sequence[tuple[Network | str, int]],
    pixels: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """What so many queries cost over each network, one after the other in one session.

    Set-up is not delayed: it would take minutes over a slow network, and is not what is asked for.
    """
    stages = [(named_network(n) if isinstance(n, str) else n, queries) for n, queries in networks]
    return run_finely(_measure(Path(folder), protocol(protocol_name), LOOPBACK, stages, pixels))


class Parties:
    """An open session between engine processes, and what they have sent."""

    def __init__(self, engines: list[EngineProcess], tunnels: dict[tuple[int, int], Tunnel]):
        self._engines, self._tunnels = engines, tunnels

    def shape(self, network: Network) -> None:
        """Puts this network between the parties from now on."""
        for tunnel in self._tunnels.values():
            tunnel.shape(network)

    def sent(self) -> list[Counts]:
        """What each party has sent, to all others together."""
        totals = [Counts()] * len(self._engines)
        for (own, _), tunnel in self._tunnels.items():
            totals[own] = totals[own] + tunnel.counts()[0]
        return totals

    def processor_seconds(self) -> float:
        """Processor time of all parties so far, which other work on the machine hardly changes."""
        ticks = 0
        for engine in self._engines:
            # Behind the name, which may hold blanks: user and system time are the 14th and 15th field.
            fields = Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    async def open(self) -> None:
        """Links the engines and sets them up."""
        token, parties = secrets.token_hex(16), len(self._engines)
        await asyncio.gather(*(e.open(parties, token, PATIENCE_SECONDS) for e in self._engines))

    async def query(self, pixels: np.ndarray) -> Query:
        """One query with one image (C, S, S), or as many as the session was compiled for."""
        before, started, used = self.sent(), time.monotonic(), self.processor_seconds()
        work = [e.query(pixels if rank == CLIENT else None) for rank, e in enumerate(self._engines)]
        answers = await asyncio.gather(*work)
        seconds = time.monotonic() - started
        logits = answers[CLIENT][0]
        assert logits is not None
        counts = [now - then for now, then in zip(self.sent(), before, strict=True)]
        return Query(counts, seconds, logits, self.processor_seconds() - used)


@contextlib.asynccontextmanager
async def joined_parties(
    folder: Path, found: Protocol, network: Network = LOOPBACK, images: int = 1
) -> AsyncIterator[Parties]:
    """Processes of all parties that have compiled for so many images, joined by tunnels and not yet open."""
    with tempfile.TemporaryDirectory(prefix="privit-measure-") as logs:
        async with contextlib.AsyncExitStack() as stack:
            engines = await _start_engines(folder, found, Path(logs) / "engine.log", stack, images)
            yield Parties(engines, await _join(engines, network, stack))


async def _measure(
    folder: Path,
    found: Protocol,
    setup_network: Network,
    stages: Sequence[tuple[Network, int]],
    pixels: np.ndarray | None,
) -> list[dict[str, Any]]:
    spec = load_artifact(part_of(folder, "client")).spec
    if pixels is None:
        shape = (spec.channels, spec.image_size, spec.image_size)
        pixels = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    images = len(pixels) if pixels.ndim == 4 else 1
    async with joined_parties(folder, found, setup_network, images) as parties:
        started = time.monotonic()
        await parties.open()
        setup = parties.sent()
        facts = {
            "protocol": found.name,
            "private": found.private,
            "measured_on": "processes",
            "setup_bytes": max(c.engine_bytes for c in setup),
            "setup_rounds": max(c.actions for c in setup),
            "setup_seconds": time.monotonic() - started,
        }
        results = []
        for network, queries in stages:
            parties.shape(network)
            runs = [await parties.query(pixels) for _ in range(queries)]
            results.append(facts | _result(network, runs))
    return results


def _result(network: Network, runs: Sequence[Query]) -> dict[str, Any]:
    last = runs[-1].counts
    return {
        "network": network.to_json(),
        "sent_bytes": max(c.engine_bytes for c in last),
        "rounds": max(c.actions for c in last),
        "wire_bytes": max(c.wire_bytes for c in last),
        "seconds": runs[-1].seconds,
        "query_seconds": [run.seconds for run in runs],
        "query_rounds": [[c.actions for c in run.counts] for run in runs],
        "logits": [float(value) for value in runs[-1].logits],
    }


async def _start_engines(
    folder: Path, found: Protocol, log_file: Path, stack: contextlib.AsyncExitStack, images: int
) -> list[EngineProcess]:
    sides = {"server": "server", "client": "client", "helper": "client"}
    starts = [
        asyncio.ensure_future(
            EngineProcess.start(
                part_of(folder, sides[role]), found.name, role, log_file, found.parties, images
            )
        )
        for role in list(RANKS)[: found.parties]
    ]
    for start in starts:
        stack.push_async_callback((await start).stop)
    return [start.result() for start in starts]


async def _join(
    engines: list[EngineProcess], network: Network, stack: contextlib.AsyncExitStack
) -> dict[tuple[int, int], Tunnel]:
    """A tunnel between every two parties; `[a, b]` is a's end. The later party's end is shaped, both ways."""
    tunnels = {}
    for a, b in combinations(range(len(engines)), 2):
        for sock, own, other in zip(await _socket_pair(), (a, b), (b, a), strict=True):
            reader, writer = await asyncio.open_connection(sock=sock, limit=DATA_LIMIT)
            tunnel = Tunnel(reader, writer, first=own == a, network=network if own == b else None)
            tunnel.start()
            stack.push_async_callback(tunnel.close)
            await tunnel.attach(engines[own].socket_of(own), engines[own].socket_of(other))
            tunnels[own, other] = tunnel
    return tunnels


async def _socket_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for sock in (near, far):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
    return near, far
