"""The engine's arithmetic in the clear: one process holds everything, and runs the very program of a query.

SPU's reference protocol (REF2K) computes in the same ring with the same fraction bits and the same generic
functions as the protocols that share secrets. It differs in what a truncation does: it cuts bits off, where
theirs have a random error of up to two units, and it is right for products up to twice as large. So
while all values are in their ranges it equals them up to that noise, and beyond all give nonsense, each
its own (tests/serve/model/test_guard.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import spu
from spu import libspu

from privit.serve.compile.compile import Program
from privit.serve.engine.engine_log import quiet_engine
from privit.serve.engine.protocols import Protocol

REFERENCE = Protocol(
    "reference",
    "REF2K",
    parties=1,
    private=False,
    owner_typed=False,
    trust="whoever runs it, who sees everything: arithmetic in the clear, for checking",
)


class Reference:
    """A program and the server's values on the reference protocol; call `run` for each image."""

    def __init__(self, program: Program, server_values: Mapping[str, np.ndarray]):
        quiet_engine()
        config = REFERENCE.runtime_config()
        description = libspu.link.Desc()
        description.add_party("alone", "memory")
        self._program = program
        self._io = spu.Io(1, config)
        self._runtime = spu.Runtime(libspu.link.create_mem(description, 0), config)
        self._give(server_values)

    def run(self, client_values: Mapping[str, np.ndarray]) -> np.ndarray:
        """What the client would open: logits, and the guard's bit behind them if the program has one."""
        self._give(client_values)
        self._runtime.run(self._program.executable)
        return np.asarray(self._io.reconstruct([self._runtime.get_var(self._program.output)]))

    def _give(self, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            array = np.ascontiguousarray(value, np.float32)
            (share,) = self._io.make_shares(array, libspu.Visibility.VIS_SECRET)
            self._runtime.set_var(name, share)
