"""What the engine's CHEETAH options do to a query: bytes, rounds, processor time and the largest logit error.

    python -m benchmarks.cheetah_options [--plan searched]

The model of the digits, all parties in one process, each option alone against none. Processor time is of
both parties; it says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

import jax
import numpy as np
from spu import libspu

from benchmarks.predicted import KINDS, models, plan_of, ranges_of
from privit.artifact import Preprocessing, Public
from privit.program.choices import batch_for
from privit.program.graph import Graph
from privit.serve.compile.compile import OUTPUT, client_values, compile_program, server_values
from privit.serve.engine.protocols import Protocol, protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.bench import random_image, random_weights
from privit.serve.model.forward import forward

OPTIONS: tuple[tuple[str, bool], ...] = (
    ("", False),
    ("enable_mul_lsb_error", True),
    ("disable_matmul_pack", True),
)


@dataclass(frozen=True)
class Optioned(Protocol):
    """A protocol with one more of the engine's options."""

    option: str = ""
    value: bool = False

    def runtime_config(self, profile: bool = False) -> libspu.RuntimeConfig:
        """The engine's settings with the option."""
        config = super().runtime_config(profile)
        if self.option:
            setattr(config.cheetah_2pc_config, self.option, self.value)
        return config


def main() -> int:
    """Prints a row for every option."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", default="searched", choices=KINDS[:2])
    parser.add_argument("--runs", type=int, default=3)
    wanted = parser.parse_args()
    spec = models("cheetah")["digits"]
    plan, names = plan_of(spec, wanted.plan), tuple(str(i) for i in range(spec.classes))
    preprocessing = Preprocessing(spec.image_size, spec.channels, (0.5,), (0.5,))
    public = Public(spec, preprocessing, names, ranges_of(spec, wanted.plan))
    values = server_values(public, plan, random_weights(public, plan, 0))
    values |= client_values(public, random_image(public, 0))
    program, graph = compile_program(public, plan, batch=batch_for("cheetah", 1)), Graph.of(public, plan)
    clear = np.asarray(jax.jit(lambda given: forward(graph, given))(values))
    print(
        f"{'option':24}{'MB':>8}{'rounds':>8}{'processor s':>13}{'seconds':>9}{'set-up MB':>11}{'error':>9}"
    )
    for option, value in OPTIONS:
        found = Optioned(**vars(protocol("cheetah")), option=option, value=value)
        with Simulator(found) as simulator:
            simulator.give(program.inputs, values)
            runs = []
            for _ in range(wanted.runs):
                began = time.process_time()
                counts = simulator.run(program.executable)
                spent = time.process_time() - began
                runs.append((counts.sent_bytes / 1e6, counts.rounds, spent, counts.seconds))
            error = float(np.abs(simulator.open(OUTPUT) - clear).max())
            setup = simulator.setup.sent_bytes / 1e6
        sent, rounds, spent, seconds = (statistics.median(column) for column in zip(*runs, strict=True))
        row = f"{option or 'none':24}{sent:8.2f}{rounds:8.0f}{spent:13.2f}"
        print(f"{row}{seconds:9.2f}{setup:11.2f}{error:9.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
