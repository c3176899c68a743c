"""The engine's arithmetic in the clear: one process holds everything, and runs the program of a query.

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

from privit.artifact import Artifact
from privit.program.choices import Batch
from privit.serve.compile.compile import Program, client_values, compile_program, server_values
from privit.serve.engine.engine_log import quiet_engine
from privit.serve.engine.protocols import Protocol
from privit.serve.engine.shares import make_shares

REFERENCE = Protocol(
    "reference",
    "REF2K",
    parties=1,
    private=False,
    owner_typed=False,
    trust="whoever runs it, who sees everything: arithmetic in the clear, for checking",
)


VALUES_AT_ONCE, MOST_AT_ONCE = 1 << 14, 16
"""Of a small model most of a run is beginning its operations, which several images share: so many that their
tokens have about so many values."""


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
            (share,) = make_shares(self._io, value)
            self._runtime.set_var(name, share)


def reference_answers(artifact: Artifact, images: np.ndarray) -> np.ndarray:
    """What clients would open for images (n, C, S, S), a row each: logits, and the guard's bit if any.

    Images of a small model share runs of a program for as many; each has its own row and its own bit in it.
    """
    assert artifact.weights is not None
    public, plan, spec = artifact.public, artifact.plan, artifact.spec
    count = max(1, min(MOST_AT_ONCE, VALUES_AT_ONCE // (spec.tokens * spec.width), len(images)))
    program = compile_program(public, plan, batch=Batch(count, count))
    reference = Reference(program, server_values(public, plan, artifact.weights))
    last = len(images) - count
    # The last run is filled up with images that were answered before.
    starts = [min(start, last) for start in range(0, len(images), count)]
    found: dict[int, np.ndarray] = {}
    for start in starts:
        rows = reference.run(client_values(public, images[start : start + count])).reshape(count, -1)
        found |= {start + i: row for i, row in enumerate(rows)}
    return np.stack([found[i] for i in range(len(images))])
