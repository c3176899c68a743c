"""All parties in one process, as threads: the same program, protocol and bytes, without a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import spu
from spu import libspu

from privit.errors import WorkError
from privit.machine.threads import engine_in_this_thread
from privit.serve.compile.compile import Input
from privit.serve.engine.engine_log import quiet_engine
from privit.serve.engine.profile import Counts, read_all_parties, read_two_party
from privit.serve.engine.protocols import CLIENT, SERVER, Protocol
from privit.serve.engine.shares import make_shares
from privit.serve.engine.warming import warm_up_program

OWNER_RANKS = {"server": SERVER, "client": CLIENT}
RECEIVE_TIMEOUT_MS = 600_000
"""On a busy machine one party may compute for minutes while the others wait."""
T = TypeVar("T")

_one_at_a_time = threading.Lock()
"""The engine's log does not say whose lines are whose, so executions take turns."""


class Simulator:
    """A runtime for each party, joined by memory links; set-up is paid on entering.

    `parallel` is what `warming.runs_parallel` says of what will be run; set-up is longer with it.
    Both parties' values meet in this process: it is for measuring and checking, never for serving.
    """

    def __init__(self, protocol: Protocol, parallel: bool = True):
        self.protocol, self._parallel = protocol, parallel
        self._log = quiet_engine()
        self._io = spu.Io(protocol.parties, protocol.runtime_config())
        self._links: list[libspu.link.Context] = []
        self._runtimes: list[spu.Runtime] = []
        self.setup = Counts(())

    def __enter__(self) -> Simulator:
        description = libspu.link.Desc()
        description.recv_timeout_ms = RECEIVE_TIMEOUT_MS
        for rank in range(self.protocol.parties):
            description.add_party(f"party{rank}", f"memory{rank}")
        self._links = self._each(lambda rank: libspu.link.create_mem(description, rank))
        self._runtimes = self._each(self._make_runtime)
        self.setup = self._warm_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtimes = []
        if error is None:
            self._each(lambda rank: self._links[rank].stop_link())
        self._links = []

    def _make_runtime(self, rank: int) -> spu.Runtime:
        # With two parties, what rank 0 receives is what the other sends; with three, each has to say.
        profile = rank == SERVER or self.protocol.parties > 2
        return spu.Runtime(self._links[rank], self.protocol.runtime_config(profile))

    def give(self, inputs: Sequence[Input], values: Mapping[str, np.ndarray]) -> None:
        """Hands every input among `values` to the parties, owner-typed where the protocol has it."""
        for entry in inputs:
            if entry.name not in values:
                continue
            owner = OWNER_RANKS[entry.owner] if self.protocol.owner_typed else -1
            shares = make_shares(self._io, values[entry.name], owner)
            for runtime, share in zip(self._runtimes, shares, strict=True):
                runtime.set_var(entry.name, share)

    def run(self, executable: libspu.Executable) -> Counts:
        """Runs an executable on what the parties hold; its output stays with them, in shares."""
        with _one_at_a_time:
            start = self._log.stat().st_size
            began, processor = time.perf_counter(), time.process_time()
            computing = self._each(lambda rank: self._run(rank, executable))
            seconds = time.perf_counter() - began
            processor = time.process_time() - processor
            with self._log.open(encoding="utf-8", errors="replace") as log:
                log.seek(start)
                text = log.read()
        read = read_two_party if self.protocol.parties == 2 else read_all_parties
        return replace(read(text), seconds=seconds, computing=tuple(computing), processor_seconds=processor)

    def _run(self, rank: int, executable: libspu.Executable) -> float:
        """Processor time of this party's own thread."""
        began = time.thread_time()
        self._runtimes[rank].run(executable)
        return time.thread_time() - began

    def open(self, name: str) -> np.ndarray:
        """The value of that name, put together from every party's share."""
        return np.asarray(self._io.reconstruct([runtime.get_var(name) for runtime in self._runtimes]))

    def forget(self, names: Sequence[str]) -> None:
        """Drops values that the parties hold."""
        for runtime in self._runtimes:
            for name in names:
                runtime.del_var(name)

    def _warm_up(self) -> Counts:
        """What the engine prepares on first use (keys, oblivious transfers), prepared now."""
        program = warm_up_program(self._parallel)
        self.give(program.inputs, {entry.name: np.zeros(entry.shape) for entry in program.inputs})
        counts = self.run(program.executable)
        self.forget([*(entry.name for entry in program.inputs), program.output])
        return counts

    def _each(self, work: Callable[[int], T]) -> list[T]:
        results: list[Any] = [None] * self.protocol.parties
        errors: list[BaseException] = []

        def run(rank: int) -> None:
            try:
                with engine_in_this_thread(self.protocol.parties):
                    results[rank] = work(rank)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(r,), daemon=True) for r in range(self.protocol.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            first = str(errors[0]).splitlines()[0] if str(errors[0]) else type(errors[0]).__name__
            raise WorkError(f"the engine stopped: {first}", f"its log is {self._log}") from errors[0]
        return results
