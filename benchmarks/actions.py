"""What one send action costs between processes: the engine's own link, and through the tunnel, with TLS too.

    python -m benchmarks.actions [--actions 2000] [--bytes 64]

Two processes send each other small messages in turn over the engine's link, as a protocol with many rounds
does: `direct` from engine to engine, then through both ends of a tunnel, which lie in processes of their own
as at a server and a client. Wall clock an action, and the processor time that one end of the tunnel adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
LIMIT_MS = 0.5
WAYS = ("direct", "tunnel", "tunnel with TLS")
SECONDS = 300.0


def engine(rank: int, folder: Path, session: str, actions: int, size: int) -> None:
    """One party: sends and receives in turn, and prints how long an action took."""
    from privit.serve.engine.engine import Addresses, _make_link
    from privit.serve.engine.engine_log import quiet_engine

    quiet_engine()
    sockets = (folder / "0.sock", folder / "1.sock")
    link = _make_link(Addresses(sockets, session, SECONDS), rank)
    other, message = 1 - rank, secrets.token_bytes(size)
    for turn in range(-50, actions // 2):
        if turn == 0:
            started = time.perf_counter()
        for sender in (0, 1):
            if sender == rank:
                link.send(other, message)
            else:
                link.recv(other)
    print(json.dumps({"seconds": (time.perf_counter() - started) / (2 * (actions // 2))}), flush=True)
    link.barrier()
    link.stop_link()


async def end_of_tunnel(rank: int, folder: Path, port: int, certs: Path | None) -> None:
    """One end: joins this side's sockets to the other end until its stdin is closed."""
    from privit.serve.wire.frames import DATA_LIMIT
    from privit.serve.wire.tls import client_context, server_context
    from privit.serve.wire.tunnel import Tunnel

    joined: asyncio.Future[Tunnel] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        joined.set_result(Tunnel(reader, writer, first=True))

    if rank == 0:
        context = server_context(HOST, certs and certs / "server")
        server = await asyncio.start_server(accept, HOST, port, limit=DATA_LIMIT, ssl=context)
        print(server.sockets[0].getsockname()[1], flush=True)
    else:
        context = client_context(HOST, certs and certs / "one")
        reader, writer = await asyncio.open_connection(HOST, port, limit=DATA_LIMIT, ssl=context)
        joined.set_result(Tunnel(reader, writer, first=False))
    tunnel = await joined
    tunnel.start()
    await tunnel.attach(folder / f"{rank}.sock", folder / f"{1 - rank}.sock")
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps({"processor": time.process_time()}), flush=True)
    os._exit(0)


def start(*arguments: object) -> subprocess.Popen[str]:
    """A child of this benchmark."""
    command = [sys.executable, "-m", "benchmarks.actions", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(child: subprocess.Popen[str]) -> str:
    """What a child says next."""
    assert child.stdout is not None
    said = child.stdout.readline()
    if not said:
        raise RuntimeError("a process of the benchmark ended early")
    return said


def measure(way: str, actions: int, size: int) -> dict[str, float]:
    """Milliseconds an action of one way, and what one end of the tunnel worked for it."""
    with tempfile.TemporaryDirectory(prefix="privit-act-") as name:
        folders = [Path(name) / str(rank if way != "direct" else 0) for rank in (0, 1)]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        ends: list[subprocess.Popen[str]] = []
        if way != "direct":
            ends = _tunnel(Path(name), folders, way.endswith("TLS"))
        session = secrets.token_hex(8)
        parties = [start("--engine", r, folders[r], session, actions, size) for r in (0, 1)]
        found = [float(json.loads(line(party))["seconds"]) for party in parties]
        for party in parties:
            party.wait(timeout=60)
        for end in ends:
            assert end.stdin is not None
            end.stdin.close()
        work = [float(json.loads(line(end))["processor"]) for end in ends]
        for end in ends:
            end.wait(timeout=60)
    return {"action_ms": 1e3 * max(found), "end_processor_seconds": max(work, default=0.0)}


def _tunnel(folder: Path, folders: list[Path], tls: bool) -> list[subprocess.Popen[str]]:
    certs: object = "-"
    if tls:
        from privit.serve.wire.certs import make_certs

        certs = folder / "certs"
        make_certs(folder / "certs", [HOST], ["one"])
    first = start("--end", 0, folders[0], 0, certs)
    port = int(line(first))
    second = start("--end", 1, folders[1], port, certs)
    for end in (first, second):
        line(end)
    return [first, second]


def main() -> int:
    """Prints the table; 1 where an action costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--engine", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--end", nargs=4, help=argparse.SUPPRESS)
    wanted: Any = parser.parse_args()
    if wanted.engine:
        rank, folder, session, actions, size = wanted.engine
        engine(int(rank), Path(folder), session, int(actions), int(size))
        return 0
    if wanted.end:
        rank, folder, port, certs = wanted.end
        asyncio.run(end_of_tunnel(int(rank), Path(folder), int(port), None if certs == "-" else Path(certs)))
        return 0
    print(f"load before: {os.getloadavg()[0]:.1f}")
    print(f"{'way':18}{'ms an action':>14}{'more than direct':>18}{'one end worked, ms an action':>30}")
    direct, missed = 0.0, False
    for way in WAYS:
        short, found = measure(way, 100, wanted.bytes), measure(way, wanted.actions, wanted.bytes)
        direct = direct or found["action_ms"]
        # A shorter run takes off what starting an end costs.
        worked = (found["end_processor_seconds"] - short["end_processor_seconds"]) / (wanted.actions - 100)
        more = found["action_ms"] - direct
        missed |= more > LIMIT_MS
        print(f"{way:18}{found['action_ms']:14.3f}{more:18.3f}{1e3 * worked:30.3f}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
