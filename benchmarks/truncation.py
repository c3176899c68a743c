"""Errors of one fixed-point product as it nears the engine's range: `python -m benchmarks.truncation`.

A product of two numbers with f fractional bits has 2f of them until the engine truncates it. The engine's
truncations are right only while it stays below a quarter of the ring (docs/security.md).
"""

from __future__ import annotations

import json
import sys

import numpy as np

from privit.program.ranges import FRACTION_BITS, RING_BITS
from privit.serve.compile.compile import Input, program_of
from privit.serve.engine.protocols import PROTOCOLS
from privit.serve.engine.simulator import Simulator

PAIRS = 20_000
FAR_OFF_UNITS = 16.0


def measure(simulator: Simulator, exponent: float, pairs: int = PAIRS, seed: int = 0) -> dict[str, float]:
    """Errors of products of size 2**exponent in units of the last place, and how many are far off."""
    rng = np.random.default_rng(seed)
    left = _on_grid(rng.uniform(1, 2, pairs) * 2.0 ** (exponent / 2) * rng.choice([-1, 1], pairs))
    right = _on_grid(2.0**exponent / left)
    exact = left * right
    # Taken off before the answer is opened, so that its float32 shows the last place of a large product.
    offset = _on_grid(exact)
    inputs = tuple(Input(name, (pairs,), "client") for name in ("right", "offset"))
    inputs = (Input("left", (pairs,), "server"), *inputs)
    program = program_of(lambda v: v["left"] * v["right"] - v["offset"], inputs)
    simulator.give(inputs, {"left": left, "right": right, "offset": offset})
    simulator.run(program.executable)
    rest = np.asarray(simulator.open(program.output), np.float64)
    units = np.abs(rest - (exact - offset)) * 2**FRACTION_BITS
    return {
        "exponent": exponent,
        "untruncated_bits": exponent + 2 * FRACTION_BITS,
        "max_error_units": float(units[units < FAR_OFF_UNITS].max(initial=0.0)),
        "far_off": int((units >= FAR_OFF_UNITS).sum()),
        "max_error": float(units.max() / 2**FRACTION_BITS),
    }


def _on_grid(values: np.ndarray) -> np.ndarray:
    """The nearest numbers that both float32 and the engine hold exactly."""
    return np.round(values.astype(np.float32).astype(np.float64) * 2**FRACTION_BITS) / 2**FRACTION_BITS


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
