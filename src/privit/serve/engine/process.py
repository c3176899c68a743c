"""This side's half of a session: a worker process and the private folder of its sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import privit.errors
from privit.errors import PrivitError, WorkError
from privit.machine.threads import engine_environment
from privit.serve.engine.allowance import UNBOUNDED, Allowance
from privit.serve.engine.socket_folder import SUFFIX, SocketFolder
from privit.serve.wire.addresses import keeping
from privit.serve.wire.frames import Kind, pack, read_frame

LOCAL_KINDS = frozenset({Kind.CONTROL, Kind.BLOB})
ANSWER_LIMIT = 1 << 20


class EngineDied(WorkError):
    """The engine's process ended by itself; its last words are in the log file."""


class EngineProcess:
    """A worker process of this party: `compile` until it is opened once, then `query` as often as wanted."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, log_file: Path):
        self._process, self._sock = process, sock
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.log_file = log_file
        self._folder = SocketFolder()
        self.description: dict[str, str] = {}
        self.allowance = UNBOUNDED
        self.images = 1

    @classmethod
    async def start(
        cls,
        folder: Path,
        protocol: str,
        role: str,
        log_file: Path,
        engines: int = 1,
        images: int = 1,
        compiled: bytes | None = None,
    ) -> EngineProcess:
        """A process that has compiled the program for so many images; its output goes to `log_file`.

        `engines` is how many may compute on this machine at the same time, this one among them; `compiled`
        is the `program` of a process before it, which this one takes instead of compiling.
        """
        ours, theirs = socket.socketpair()
        with keeping(log_file.parent):
            log_file.parent.mkdir(parents=True, exist_ok=True)
            output = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with theirs, os.fdopen(output, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "privit.serve.engine.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=engine_environment(engines),
                start_new_session=True,  # a Ctrl-C at the terminal is for the parent to handle
            )
        ours.setblocking(False)
        engine = cls(process, ours, log_file)
        try:
            await engine._compile(
                images,
                compiled,
                do="prepare",
                folder=str(folder.resolve()),
                protocol=protocol,
                role=role,
                log_file=str(log_file.resolve()),
            )
        except BaseException:
            await engine.stop()
            raise
        return engine

    async def compile(self, images: int, compiled: bytes | None = None) -> None:
        """Makes the program for so many images the one that is run, before the process is opened."""
        if images != self.images:
            await self._compile(images, compiled, do="compile")

    async def program(self) -> bytes:
        """The program that was compiled last, for other processes of this party."""
        _, compiled = await self.ask(do="program")
        assert compiled is not None
        return compiled

    async def _compile(self, images: int, compiled: bytes | None, **request: Any) -> None:
        reply, _ = await self.ask(compiled, images=images, compiled=compiled is not None, **request)
        self.description = dict(reply["description"])
        self.allowance = Allowance(**reply["allowance"])
        self.images = images

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def socket_of(self, rank: int) -> Path:
        """The socket at which this side's engine finds the party of that rank, itself included."""
        return self._folder.path / f"{rank}{SUFFIX}"

    def move(self) -> None:
        """Gives a worker that was not opened yet another folder: who knew the old one cannot reach it."""
        self._folder.remove()
        self._folder = SocketFolder()

    async def open(self, parties: int, session: str, patience_seconds: float) -> float:
        """Links the engine to the other parties and sets it up; the seconds that took."""
        sockets = [str(self.socket_of(rank)) for rank in range(parties)]
        reply, _ = await self.ask(
            do="open", sockets=sockets, session=session, patience_seconds=patience_seconds
        )
        return float(reply["seconds"])

    async def query(self, pixels: np.ndarray | None = None) -> tuple[np.ndarray | None, float]:
        """One run: the answer on the client's side, flat, None elsewhere, and the engine's seconds."""
        blob = None if pixels is None else np.ascontiguousarray(pixels, np.float32).tobytes()
        reply, answer = await self.ask(blob, do="query")
        logits = None if answer is None else np.frombuffer(answer, np.float32)
        return logits, float(reply["seconds"])

    async def ask(self, blob: bytes | None = None, **request: Any) -> tuple[dict[str, Any], bytes | None]:
        """One request and its answer; raises what the worker reports, or EngineDied."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._sock, limit=ANSWER_LIMIT)
        reader, writer = self._streams
        try:
            writer.write(pack(Kind.CONTROL, 0, json.dumps(request).encode()))
            if blob is not None:
                writer.write(pack(Kind.BLOB, 0, blob))
            await writer.drain()
            frame = await read_frame(reader, LOCAL_KINDS)
            if frame is None:
                raise ConnectionResetError
            reply = dict(json.loads(frame.payload))
            answer = await read_frame(reader, LOCAL_KINDS) if reply.get("blob") else None
        except (OSError, privit.errors.ConnectionFailed):
            raise self._death() from None
        if reply["event"] == "failed":
            raise self._failure(reply["failure"])
        return reply, None if answer is None else answer.payload

    async def stop(self) -> None:
        """Ends the process at once, waits for it and removes its sockets; safe to call twice."""
        self.kill()
        await asyncio.get_running_loop().run_in_executor(None, self._process.wait)
        if self._streams is not None:
            self._streams[1].close()
        self._sock.close()

    def kill(self) -> None:
        """Ends the process at once and removes its sockets, without waiting."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._folder.remove()

    def _death(self) -> EngineDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.returncode
        reason = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        return EngineDied(f"the engine on this side stopped ({reason})", f"its log is {self.log_file}")

    def _failure(self, failure: dict[str, str]) -> PrivitError:
        # MissingExtra builds its own message from other arguments.
        kinds = {k.__name__: k for k in vars(privit.errors).values() if isinstance(k, type)}
        kinds["MissingExtra"] = privit.errors.RequestError
        kind = kinds.get(failure["class"], WorkError)
        hint = failure["hint"] or f"its log is {self.log_file}"
        return kind(failure["message"], hint)
