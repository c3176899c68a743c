"""Servers and helpers as processes of their own on this machine: for demo, evaluation, tests and soak.

`python -m privit.serve.parties.processes JSON` runs one and prints its port on stdout once clients can
connect.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from privit.errors import PrivitError, WorkError
from privit.serve.parties.limits import Limits

STOP_SECONDS = 60.0


@dataclass(frozen=True)
class LocalParty:
    """A server or helper that runs beside this process."""

    address: str
    process: subprocess.Popen[str]
    state: Path


@contextlib.contextmanager
def local_server(
    folder: Path,
    state: Path,
    protocol: str = "cheetah",
    limits: Limits | None = None,
    helper: str | None = None,
    certs: Path | None = None,
    port: int = 0,
) -> Iterator[LocalParty]:
    """A server of the artifact on loopback, stopped at the end of the `with`."""
    options = {
        "folder": str(folder),
        "protocol": protocol,
        "limits": asdict(limits or Limits()),
        "helper": helper,
        "certs": certs and str(certs),
    }
    with _party("server", options, state, port) as party:
        yield party


@contextlib.contextmanager
def local_helper(
    folder: Path, state: Path, limits: Limits | None = None, certs: Path | None = None, port: int = 0
) -> Iterator[LocalParty]:
    """A helper for aby3 on loopback, stopped at the end of the `with`."""
    options = {"folder": str(folder), "limits": asdict(limits or Limits()), "certs": certs and str(certs)}
    with _party("helper", options, state, port) as party:
        yield party


@contextlib.contextmanager
def local_parties(folder: Path, state: Path, protocol: str) -> Iterator[tuple[LocalParty, str | None]]:
    """A server, and the address of a helper if the protocol has one."""
    with contextlib.ExitStack() as stack:
        helper = None
        if protocol == "aby3":
            helper = stack.enter_context(local_helper(folder, state / "helper")).address
        yield stack.enter_context(local_server(folder, state / "server", protocol, helper=helper)), helper


@contextlib.contextmanager
def _party(role: str, options: Mapping[str, object], state: Path, port: int) -> Iterator[LocalParty]:
    state.mkdir(parents=True, exist_ok=True)
    request = json.dumps({**options, "role": role, "state": str(state), "port": port})
    with (state / "output.log").open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "privit.serve.parties.processes", request],
            stdin=subprocess.PIPE,  # its end tells the party that we are gone, however we went
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield LocalParty(f"127.0.0.1:{_wait_for_port(process, role, state)}", process, state)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def _wait_for_port(process: subprocess.Popen[str], role: str, state: Path) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    answer = json.loads(line) if line.startswith("{") else {}
    if "port" in answer:
        return int(answer["port"])
    raise WorkError(
        answer.get("message", f"the {role} did not start"),
        answer.get("hint") or f"what it said is in {state / 'output.log'}",
    )


def main() -> None:
    """Runs the party that the first argument describes, until it is told to stop."""
    options = json.loads(sys.argv[1])
    threading.Thread(target=_stop_with_parent, name="parent", daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    role, limits = options.pop("role"), Limits(**options.pop("limits"))
    for name in ("folder", "state", "certs"):
        options[name] = Path(options[name]) if options[name] else None
    try:
        if role == "server":
            from privit.serve.parties.server import serve

            serve(limits=limits, on_ready=lambda port: _say(port=port), **options)
        else:
            from privit.serve.parties.helper import run_helper

            run_helper(limits=limits, on_ready=lambda port: _say(port=port), **options)
    except PrivitError as error:
        _say(message=error.message, hint=error.hint)
        sys.exit(error.exit_code)


def _stop_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
