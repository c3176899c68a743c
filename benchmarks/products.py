"""What a matrix product costs on a protocol by its shape, by who owns what, and by how it is cut.

    python -m benchmarks.products                                  # the grid of docs/engine.md, on cheetah
    python -m benchmarks.products --shapes 50x192x576,50x192x768 --kinds matmul_weight --runs 3
    python -m benchmarks.products --show                           # the table alone

Each product runs alone, all parties in one process, after one run that is not counted. Processor time is of
all parties together: it says the same on a busy machine, where seconds do not. Kinds are those of
`program/operation.py`: matmul (both shared), matmul_weight (shared by the server's own), matmul_input (the
client's own by the server's own). `as cut` is how a program cuts a product (`program/tiles.py`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from privit.program.choices import batch_for
from privit.serve.compile.compile import Input, program_of
from privit.serve.engine.protocols import protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.probes import OWNERS, PROBES
from privit.serve.model.images import product

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "products.json"
SHAPES = (
    (50, 192, 576),
    (50, 192, 768),
    (50, 768, 192),
    (50, 192, 192),
    (50, 64, 50),
    (50, 50, 64),
    (17, 192, 576),
    (17, 192, 768),
    (17, 768, 192),
    (17, 64, 192),
    (17, 64, 256),
    (17, 256, 64),
    (197, 192, 192),
    (197, 192, 576),
)
KINDS = ("matmul_weight", "matmul")
CUTTING = batch_for("cheetah", 1)
Form = Callable[[Array, Array], Array]


def rows_cut(pieces: int) -> Form:
    """The left factor cut between rows."""
    return lambda a, b: jnp.concatenate([part @ b for part in jnp.array_split(a, pieces)])


def columns_cut(pieces: int) -> Form:
    """The right factor cut between columns."""
    return lambda a, b: jnp.concatenate([a @ part for part in jnp.array_split(b, pieces, axis=1)], axis=1)


def inner_cut(pieces: int) -> Form:
    """Both cut along the inner size, and the products added."""

    def form(a: Array, b: Array) -> Array:
        pairs = zip(jnp.array_split(a, pieces, axis=1), jnp.array_split(b, pieces), strict=True)
        return sum((left @ right for left, right in pairs), start=jnp.zeros(()))

    return form


FORMS: dict[str, Form] = {
    "whole": lambda a, b: a @ b,
    "transposed": lambda a, b: (b.T @ a.T).T,
    "rows / 2": rows_cut(2),
    "inner / 2": inner_cut(2),
    "columns / 3": columns_cut(3),
    "as cut": lambda a, b: product(CUTTING, a, b),
}


def measure(
    simulator: Simulator, kind: str, shape: tuple[int, ...], form: Form, runs: int
) -> dict[str, float]:
    """One form of one product: medians of seconds and processor time, and the bytes of who sends more."""
    names = PROBES[kind][0]
    inputs = tuple(Input(n, shape[:2] if n.startswith("left") else shape[1:], OWNERS[n]) for n in names)  # type: ignore[arg-type]

    def function(values: Any) -> Array:
        left = [values[n] for n in names if n.startswith("left")]
        right = [values[n] for n in names if not n.startswith("left")]
        return form(sum(left[1:], start=left[0]), sum(right[1:], start=right[0]))

    program = program_of(function, inputs)
    rng = np.random.default_rng(0)
    simulator.give(inputs, {i.name: rng.uniform(-0.5, 0.5, i.shape).astype(np.float32) for i in inputs})
    found = []
    for _ in range(runs + 1):
        began = time.process_time()
        counts = simulator.run(program.executable)
        found.append((counts.seconds, time.process_time() - began, counts.sent_bytes, counts.rounds))
    simulator.forget([*(entry.name for entry in inputs), program.output])
    seconds, processor, sent, rounds = (statistics.median(column) for column in zip(*found[1:], strict=True))
    return {"seconds": seconds, "processor_seconds": processor, "sent_bytes": sent, "rounds": rounds}


def show(found: dict[str, dict[str, float]]) -> None:
    """Prints every product with each form's share of what the whole costs."""
    print(
        "| product | form | s | of whole | processor s | MB | of whole | rounds |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for key, entry in found.items():
        protocol_name, kind, shape, form = key.split("/", 3)
        whole = found.get(f"{protocol_name}/{kind}/{shape}/whole", entry)
        seconds, sent = entry["seconds"], entry["sent_bytes"]
        print(
            f"| {protocol_name} {kind} {shape} | {form} | {seconds:.2f} "
            f"| {seconds / whole['seconds']:.2f} | {entry['processor_seconds']:.2f} | {sent / 1e6:.2f} "
            f"| {sent / whole['sent_bytes']:.2f} | {entry['rounds']:.0f} |"
        )


def main() -> int:
    """Measures what is asked for and not there yet, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", default="cheetah")
    parser.add_argument("--shapes", default=",".join("x".join(map(str, shape)) for shape in SHAPES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--show", action="store_true")
    wanted = parser.parse_args()
    found: dict[str, dict[str, float]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not wanted.show:
        with Simulator(protocol(wanted.protocol)) as simulator:
            for shape in wanted.shapes.split(","):
                for kind in wanted.kinds.split(","):
                    for form in wanted.forms.split(","):
                        key = f"{wanted.protocol}/{kind}/{shape}/{form}"
                        if key in found and not wanted.again:
                            continue
                        print(key, file=sys.stderr, flush=True)
                        sizes = tuple(int(size) for size in shape.split("x"))
                        found[key] = measure(simulator, kind, sizes, FORMS[form], wanted.runs)
                        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
