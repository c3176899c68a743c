"""The matrix products of a program by shape, and what each of them costs alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from privit.program.operation import Operation
from privit.serve.compile.compile import CARRIED, Input, Segment
from privit.serve.compile.listing import program_operations
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.probes import probe, typical

RUNS = 3


def products_of(inputs: Sequence[Input], segments: Sequence[Segment]) -> Counter[Operation]:
    """How often each product occurs in a program."""
    owners = {entry.name: str(entry.owner) for entry in inputs} | {CARRIED: "shared"}
    listed = (program_operations(s.code, [owners[name] for name in s.inputs]) for s in segments)
    return Counter(o for found in listed for o in found if o.name.startswith("matmul"))


def product_rows(
    products: Counter[Operation], simulator: Simulator | None = None, runs: int = RUNS
) -> list[dict[str, Any]]:
    """Each shape with how often it occurs; with a simulator also what one of it costs alone.

    The engine logs the seconds of all products together, so that each shape is run by itself, on values that
    the same parties own. Those that take most of a query stand first.
    """
    rows: list[dict[str, Any]] = []
    for operation, times in products.items():
        row: dict[str, Any] = {"name": operation.name, "sizes": list(operation.sizes), "times": times}
        if simulator is not None:
            one = typical(probe(simulator, operation.name, operation.sizes, runs))
            row |= {
                "seconds_each": one.wall_seconds,
                "processor_seconds_each": one.processor_seconds,
                "sent_bytes_each": round(max(one.sent_bytes)),
                "seconds": times * one.wall_seconds,
            }
        rows.append(row)
    return sorted(rows, key=lambda row: (-row.get("seconds", 0.0), -row["times"], row["sizes"]))
