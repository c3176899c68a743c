"""A private query with this version and with an older checkout of it, in turns on one machine.

    git worktree add ../old COMMIT
    python -m benchmarks.before ../old ARTIFACT [--old-artifact OTHER] a.png [--turns 3] [--most 0.75]

Server and client are the two versions' own `privit serve` and `privit query`, over loopback, each turn in
fresh processes, so that whatever else the machine does meets both. Set-up is left out, as each version
reports it apart. An older version may need the artifact in its own format (`--old-artifact`).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
STARTS_WITHIN = 120.0


def _environment(checkout: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}


@contextmanager
def serving(checkout: Path, artifact: Path, protocol: str) -> Iterator[str]:
    """A version's server, on a free port, until it is left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "privit", "serve", str(artifact / "server")]
    command += ["--port", str(port), "--protocol", protocol]
    with subprocess.Popen(
        command, env=_environment(checkout), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            began = time.monotonic()
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if server.poll() is not None or time.monotonic() - began > STARTS_WITHIN:
                        raise SystemExit(f"the server of {checkout} did not start") from None
                    time.sleep(0.2)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


def asked(checkout: Path, artifact: Path, protocol: str, images: list[Path]) -> list[dict[str, Any]]:
    """What each image cost, as the version's client reports it."""
    with serving(checkout, artifact, protocol) as address:
        command = [sys.executable, "-m", "privit", "query", *map(str, images), "--json"]
        command += ["--model", str(artifact / "client"), "--server", address, "--protocol", protocol]
        done = subprocess.run(
            command, env=_environment(checkout), stdout=subprocess.PIPE, text=True, check=True
        )
    return list(_predictions(json.loads(done.stdout)))


def _predictions(found: Any) -> Iterator[dict[str, Any]]:
    """Whatever has seconds and bytes of its own, wherever a version puts it."""
    if isinstance(found, list):
        for entry in found:
            yield from _predictions(entry)
    elif isinstance(found, dict) and "seconds" in found and "sent_bytes" in found and "logits" in found:
        yield found
    elif isinstance(found, dict):
        yield from _predictions(list(found.values()))


def main() -> int:
    """Takes turns, and prints both and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("images", type=Path, nargs="+")
    parser.add_argument("--old-artifact", type=Path)
    parser.add_argument("--protocol", default="cheetah")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--most", type=float, default=0.75)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    ways = {
        "before": (wanted.old, wanted.old_artifact or wanted.artifact),
        "now": (HERE, wanted.artifact),
    }
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for turn in range(wanted.turns):
        for way, (checkout, artifact) in ways.items():
            answers = asked(checkout, artifact, wanted.protocol, wanted.images)
            found[way] += answers
            print(f"turn {turn + 1}, {way}: {[round(a['seconds'], 1) for a in answers]} s", flush=True)
    table = {
        way: {
            "seconds": [answer["seconds"] for answer in answers],
            "sent_bytes": statistics.median(answer["sent_bytes"] for answer in answers),
            "rounds": statistics.median(answer["rounds"] for answer in answers),
            "classes": [answer["class_name"] for answer in answers],
        }
        for way, answers in found.items()
    }
    middle = {way: statistics.median(entry["seconds"]) for way, entry in table.items()}
    seconds, sent = (
        middle["now"] / middle["before"],
        table["now"]["sent_bytes"] / table["before"]["sent_bytes"],
    )
    print(f"{middle['before']:.1f} -> {middle['now']:.1f} s: {seconds:.2f} of before; bytes {sent:.2f}")
    result = {"protocol": wanted.protocol, "of_before": {"seconds": seconds, "sent_bytes": sent}} | table
    if wanted.out:
        wanted.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if seconds <= wanted.most else 1


if __name__ == "__main__":
    sys.exit(main())
