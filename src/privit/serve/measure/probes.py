"""Tiny programs, one for each operation of a table, and what running them costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from privit.serve.compile.compile import Input, Program, program_of
from privit.serve.engine.simulator import Simulator

Values = Mapping[str, Array]
CONSTANT = 0.37
OWNERS = {"left0": "server", "left1": "client", "right0": "server", "right1": "client", "weight": "server"}


def _left(values: Values) -> Array:
    """A value that neither party knows: the sum of one of each."""
    return values["left0"] + values["left1"]


def _right(values: Values) -> Array:
    return values["right0"] + values["right1"]


PROBES: dict[str, tuple[tuple[str, ...], Callable[[Values], Array]]] = {
    "matmul": (("left0", "left1", "right0", "right1"), lambda v: _left(v) @ _right(v)),
    "matmul_weight": (("left0", "left1", "weight"), lambda v: _left(v) @ v["weight"]),
    "matmul_input": (("left1", "weight"), lambda v: v["left1"] @ v["weight"]),
    "square": (("left0", "left1"), lambda v: jnp.square(_left(v))),
    "multiply": (("left0", "left1", "right0", "right1"), lambda v: _left(v) * _right(v)),
    "multiply_weight": (("left0", "left1", "weight"), lambda v: _left(v) * v["weight"]),
    "multiply_public": (("left0", "left1"), lambda v: _left(v) * CONSTANT),
    "scale_weight": (("weight",), lambda v: v["weight"] * CONSTANT),
    "compare_public": (("left0", "left1"), lambda v: _left(v) > 0),
    "relu": (("left0", "left1"), lambda v: jnp.maximum(_left(v), 0.0)),
    "clip": (("left0", "left1"), lambda v: jnp.minimum(_left(v), CONSTANT)),
    "count": (("left0", "left1"), lambda v: jnp.sum((_left(v) > 0).astype(jnp.int32))),
    "joined": (("left0", "left1"), lambda v: jnp.concatenate([_left(v), (_left(v) > 0).astype(jnp.float32)])),
    "max": (("left0", "left1"), lambda v: jnp.max(_left(v), axis=-1)),
    "exp": (("left0", "left1"), lambda v: jnp.exp(_left(v))),
    "reciprocal": (("left0", "left1"), lambda v: 1.0 / _left(v)),
    "rsqrt": (("left0", "left1"), lambda v: lax.rsqrt(_left(v))),
    "tanh": (("left0", "left1"), lambda v: jnp.tanh(_left(v))),
    "divide": (("left0", "left1", "right0", "right1"), lambda v: _left(v) / _right(v)),
}
ADD: tuple[tuple[str, ...], Callable[[Values], Array]] = (("left0", "left1"), _left)
"""What is no operation of a table, because the parties need not talk for it."""
# A bit cannot be an input: what uses one is measured with the comparison that makes it, then taken off.
WITH_COMPARISON = {"multiply_bit": "relu", "select": "clip", "count_bits": "count", "number_bit": "joined"}


@dataclass(frozen=True)
class Sample:
    """One measured run; three parties' figures stand from most to least."""

    sizes: tuple[int, ...]
    sent_bytes: tuple[float, ...]
    rounds: tuple[float, ...]
    wall_seconds: float
    processor_seconds: float

    def __sub__(self, other: Sample) -> Sample:
        return Sample(
            self.sizes,
            tuple(a - b for a, b in zip(self.sent_bytes, other.sent_bytes, strict=True)),
            tuple(a - b for a, b in zip(self.rounds, other.rounds, strict=True)),
            self.wall_seconds - other.wall_seconds,
            self.processor_seconds - other.processor_seconds,
        )


def probe_program(name: str, sizes: tuple[int, ...]) -> Program:
    """The program that runs one operation once."""
    names, function = ADD if name == "add" else PROBES[name]
    product = name.startswith("matmul")
    left, right = (sizes[:2], sizes[1:]) if product else (sizes, sizes)
    inputs = tuple(Input(n, left if n.startswith("left") else right, OWNERS[n]) for n in names)  # type: ignore[arg-type]
    return program_of(function, inputs)


def probe(simulator: Simulator, name: str, sizes: tuple[int, ...], times: int = 1) -> list[Sample]:
    """Runs an operation `times` times on fresh random values."""
    program = probe_program(name, sizes)
    rng = np.random.default_rng(len(sizes))
    values = {i.name: rng.uniform(0.2, 0.8, i.shape).astype(np.float32) for i in program.inputs}
    simulator.give(program.inputs, values)
    samples = []
    for _ in range(times):
        began = time.process_time()
        counts = simulator.run(program.executable)
        processor = time.process_time() - began
        samples.append(
            Sample(
                sizes,
                tuple(float(rank.sent_bytes) for rank in counts.ranks),
                tuple(float(rank.rounds) for rank in counts.ranks),
                counts.seconds,
                processor,
            )
        )
    simulator.forget([*values, program.output])
    return samples


def cheapest(samples: Sequence[Sample]) -> Sample:
    """The run that had to refill nothing, with the times of a typical one."""
    least = min(samples, key=lambda s: (sum(s.rounds), sum(s.sent_bytes)))
    middle = typical([s for s in samples if s.rounds == least.rounds])
    return replace(least, wall_seconds=middle.wall_seconds, processor_seconds=middle.processor_seconds)


def typical(samples: Sequence[Sample]) -> Sample:
    """The first run with the middle of all times: what a program of many operations adds up to."""
    return replace(
        samples[0],
        wall_seconds=float(np.median([s.wall_seconds for s in samples])),
        processor_seconds=float(np.median([s.processor_seconds for s in samples])),
    )
