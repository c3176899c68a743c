"""The process that runs one party's engine: `python -m privit.serve.engine.worker FD`.

It speaks only with the process that started it, over an inherited socket. A crash of the engine ends
this process and nothing else; whatever the engine prints goes to the log file that is its stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from privit.errors import PrivitError
from privit.serve.wire.addresses import raised_at
from privit.serve.wire.frames import Kind, pack, read_frame_blocking

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
Event = tuple[str, dict[str, Any], bytes | None]
"""What a worker answers: a name, fields, and an array for the process that started it."""


def main() -> None:
    """Serves the requests of the parent until it closes the socket."""
    seal_process()
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        worker = Worker(parent)
        while (request := worker.next_request()) is not None and worker.handle(request):
            pass
    # The engine's threads may still wait for the other party: leave without asking them.
    sys.stderr.flush()
    os._exit(0)


def seal_process() -> None:
    """No core dump, no reading of memory by other processes, and no life after the parent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # Where memory runs out all the same, the kernel takes a worker and not the server.
            Path("/proc/self/oom_score_adj").write_text("500")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A core pattern that is a pipe ignores RLIMIT_CORE.
        libc.prctl(PR_SET_DUMPABLE, 0)


def wall_in() -> None:
    """From here on the address space grows by the machine's memory at most, beyond which the engine ends.

    The second wall behind the tunnel's count of bytes. It stands that far out because the engine reserves
    gigabytes that it does not use, for the stacks and heaps of its threads.
    """
    if sys.platform == "linux":
        page = os.sysconf("SC_PAGE_SIZE")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * page
        limit = used + os.sysconf("SC_PHYS_PAGES") * page
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class Worker:
    """Requests of the parent, in order: prepare, compile ..., open, query ..., each answered by one event."""

    def __init__(self, parent: socket.socket):
        self._parent = parent
        self._engine: Any = None
        self._image_shape: tuple[int, ...] = ()

    def next_request(self) -> dict[str, Any] | None:
        """The next request, or None when the parent has gone."""
        frame = read_frame_blocking(self._parent)
        return None if frame is None else dict(json.loads(frame.payload))

    def handle(self, request: dict[str, Any]) -> bool:
        """Answers one request; false when the worker should end."""
        try:
            started = time.monotonic()
            event, fields, blob = getattr(self, f"do_{request['do']}")(request)
            self._reply({"event": event, "seconds": time.monotonic() - started} | fields, blob)
            return True
        except PrivitError as error:
            failure = {"class": type(error).__name__, "message": error.message, "hint": error.hint}
        except RuntimeError as error:
            # The engine's own error: what failed and a C++ stack, of public shapes and types.
            logging.error("the engine failed: %s", error)
            failure = {"class": "WorkError", "message": "the engine failed", "hint": ""}
        except Exception as error:
            # Messages of other exceptions may quote values; the log gets the places only.
            logging.error("%s", raised_at(error))
            failure = {"class": "WorkError", "message": "the engine failed", "hint": ""}
        self._reply({"event": "failed", "failure": failure}, None)
        return False

    def do_prepare(self, request: dict[str, Any]) -> Event:
        """Compiles, and gives the description that the handshake compares."""
        from privit.serve.engine.engine import Engine

        log_file = Path(request["log_file"])
        images = int(request["images"])
        folder, given = Path(request["folder"]), self._given(request)
        self._engine = Engine(folder, request["protocol"], request["role"], log_file, images, given)
        spec = self._engine.artifact.spec
        self._image_shape = (spec.channels, spec.image_size, spec.image_size)
        described = self._described()
        wall_in()
        return described

    def do_compile(self, request: dict[str, Any]) -> Event:
        """Compiles for another number of images; its description takes the place of the one before."""
        self._engine.compile(int(request["images"]), self._given(request))
        return self._described()

    def do_program(self, request: dict[str, Any]) -> Event:
        """The program that was compiled, for the next worker of the same parent."""
        from privit.serve.compile.compile import program_to_bytes

        return "program", {}, program_to_bytes(self._engine.program)

    def _given(self, request: dict[str, Any]) -> bytes | None:
        """The program that came with a request, if one did."""
        if not request.get("compiled"):
            return None
        frame = read_frame_blocking(self._parent)
        assert frame is not None
        assert frame.kind is Kind.BLOB
        return frame.payload

    def _described(self) -> Event:
        from privit.serve.engine.allowance import allowance_of

        allowance = allowance_of(self._engine.artifact, self._engine.protocol.name, self._engine.images)
        return "compiled", {"description": self._engine.description(), "allowance": asdict(allowance)}, None

    def do_open(self, request: dict[str, Any]) -> Event:
        """Opens the session with the other parties."""
        from privit.serve.engine.engine import Addresses

        sockets = tuple(Path(path) for path in request["sockets"])
        self._engine.open(Addresses(sockets, request["session"], float(request["patience_seconds"])))
        return "opened", {}, None

    def do_query(self, request: dict[str, Any]) -> Event:
        """One run of the program; the client's pixels come as a blob, and its logits go back as one."""
        pixels = None
        if self._engine.role == "client":
            frame = read_frame_blocking(self._parent)
            assert frame is not None
            assert frame.kind is Kind.BLOB
            pixels = np.frombuffer(frame.payload, np.float32).reshape(-1, *self._image_shape)
        logits = self._engine.query(pixels)
        return "answered", {}, None if logits is None else logits.astype(np.float32).tobytes()

    def _reply(self, event: dict[str, Any], blob: bytes | None) -> None:
        data = pack(Kind.CONTROL, 0, json.dumps(event | {"blob": blob is not None}).encode())
        self._parent.sendall(data if blob is None else data + pack(Kind.BLOB, 0, blob))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    main()
