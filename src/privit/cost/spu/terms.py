"""What one of each thing costs, apart from any plan: the rows behind every estimate."""

from __future__ import annotations

from typing import Any

from privit.cost.gates.profiles import profile
from privit.cost.spu.cheetah import Cheetah
from privit.cost.spu.table import shipped_table
from privit.operators import BY_NAME
from privit.program.operation import Operation

Terms = tuple[tuple[str, ...], list[tuple[Any, ...]]]
"""Names of columns, and rows."""
VALUES = (1, 1000, 100_000)
ROWS = (1, 17), (50, 50), (591, 197)
PRODUCTS = (17, 16, 17), (50, 192, 576), (197, 192, 768)
LENGTHS = {"gelu": (1,), "softmax": (17, 65, 197), "norm": (64, 192, 768)}


def operator_terms(name: str) -> Terms:
    """Each operator's cost in one of the profiles paper and circuits, at a few lengths."""
    prices, rows = profile(name), []
    for operator in prices.costs:
        for length in LENGTHS[BY_NAME[operator].kind]:
            source = "extrapolated" if prices.extrapolated(operator, length) else "as given"
            if prices.published is None:
                source = "counted"
            rows.append((operator, length, round(prices.cost(operator, length)), source))
    return ("operator", "length", prices.unit, "from"), rows


def protocol_terms(name: str) -> Terms:
    """Bytes, rounds and computing seconds of each of the engine's operations, at a few sizes."""
    table = shipped_table(name)
    names = set(table.operations) | {"matmul", "matmul_weight", "max"}
    rows = []
    for operation in sorted(names):
        for sizes in _sizes(operation):
            # Each in a session of its own: nothing is left over from an operation before it.
            cost = (
                Cheetah(table).cost(Operation(operation, sizes))
                if table.ciphertexts
                else table.linear(operation, sizes)
            )
            shown = " x ".join(str(size) for size in sizes)
            seconds = table.compute_seconds(cost)
            rows.append(
                (operation, shown, round(cost.most_bytes), round(cost.most_rounds), round(seconds, 4))
            )
    return ("operation", "size", "sent_bytes", "rounds", "seconds"), rows


def _sizes(operation: str) -> tuple[tuple[int, ...], ...]:
    if operation.startswith("matmul"):
        return PRODUCTS
    return ROWS if operation == "max" else tuple((n,) for n in VALUES)
