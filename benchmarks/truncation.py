"""Errors of one fixed-point product as it nears the engine's range: `python -m benchmarks.truncation`.

A product of two numbers with f fractional bits has 2f of them until the engine truncates it. The engine's
truncations are right only while it stays below a quarter of the ring (docs/security.md).
"""

from __future__ import annotations

import json
import sys

import numpy as np

from privit.serve.compile import Input, program_of
from privit.serve.protocols import PROTOCOLS
from privit.serve.runtime import Simulator

RING_BITS, FRACTION_BITS = 64, 18
PAIRS = 20_000


def measure(simulator: Simulator, exponent: float, pairs: int = PAIRS, seed: int = 0) -> dict[str, float]:
    """Errors of products of size 2**exponent in units of the last place, and how many are far off."""
    rng = np.random.default_rng(seed)
    # Numbers on the engine's grid, so that truncation is the only error.
    size = rng.uniform(1, 2, pairs) * 2.0 ** (exponent / 2) * rng.choice([-1, 1], pairs)
    left = np.round(size * 2**6) / 2**6
    right = np.round(2.0**exponent / left * 2**6) / 2**6
    inputs = (Input("left", (pairs,), "server"), Input("right", (pairs,), "client"))
    program = program_of(lambda values: values["left"] * values["right"], inputs)
    simulator.give(inputs, {"left": left, "right": right})
    simulator.run(program.executable)
    product = np.asarray(simulator.open(program.output), np.float64)
    exact = left.astype(np.float32).astype(np.float64) * right.astype(np.float32).astype(np.float64)
    # The engine gives float32 back: a product is only known to that precision.
    rounding = np.abs(exact) * 2.0**-23
    error = np.abs(product - exact)
    units = np.maximum(error - rounding, 0) * 2**FRACTION_BITS
    return {
        "exponent": exponent,
        "untruncated_bits": exponent + 2 * FRACTION_BITS,
        "max_error_units": float(units.max()),
        "far_off": int((error > 1 + rounding).sum()),
    }


def main(exponents: tuple[float, ...] = (0, 8, 16, 22, 24, 24.9, 25.9, 26.5, 27.5)) -> dict[str, object]:
    """Every protocol at every size."""
    found = {}
    for protocol in PROTOCOLS:
        with Simulator(protocol) as simulator:
            found[protocol.name] = [measure(simulator, exponent) for exponent in exponents]
    return {"ring_bits": RING_BITS, "fraction_bits": FRACTION_BITS, "pairs": PAIRS, "protocols": found}


if __name__ == "__main__":
    json.dump(main(), sys.stdout, indent=1)
    sys.stdout.write("\n")
