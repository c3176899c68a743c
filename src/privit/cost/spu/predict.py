"""Bytes, rounds and seconds of one private prediction on SPU, predicted from a measured table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from privit.cost.network import Network
from privit.cost.network import network as named_network
from privit.cost.spu.cheetah import Cheetah
from privit.cost.spu.table import Cost, Table, read_table, shipped_table
from privit.errors import RequestError
from privit.plan import Plan, uniform_plan
from privit.program.choices import Batch, batch_for
from privit.program.graph import Graph
from privit.program.operation import Operation
from privit.program.operations import operations
from privit.program.operations.as_written import written_operations
from privit.spec import Spec, without_pools

SESSION_QUERIES = 4
"""A query leaves prepared products behind for the next: the mean over a few is what one costs."""
GRAPHS = ("all", "dense", "dense-rewritten", "without-ranges")


def estimate_spu(
    spec: Spec,
    plan: Plan,
    protocol: str = "cheetah",
    network: str | Network = "lan",
    ranges: Mapping[str, float] | None = None,
    rewrites: str = "all",
    table: Path | None = None,
    guard: bool = False,
    batch: int = 1,
) -> dict[str, Any]:
    """What one query costs after set-up, with the keys of `privit bench`; nothing of it is measured.

    A query of a `batch` answers so many images, and all figures are of the whole query.

    `ranges` are those of the artifact; without them the engine's generic functions are counted. The
    graphs dense and dense-rewritten stand for the untouched model, whatever the plan and its pools, and have
    no guard.
    """
    if rewrites not in GRAPHS:
        raise RequestError(f"no graph is called {rewrites!r}", "known: " + ", ".join(GRAPHS))
    found = read_table(table) if table else shipped_table(protocol)
    where = named_network(network) if isinstance(network, str) else network
    segments = list(_segments(spec, plan, rewrites, ranges, guard, batch_for(found.protocol, batch)))
    costs, refills = _priced(found, segments)
    total = _sum(found, costs.values())
    whole = total + refills
    return {
        "profile": "spu",
        "protocol": found.protocol,
        "private": found.private,
        "measured_on": "estimated",
        "engine": found.engine,
        "network": str(where),
        "batch": batch,
        "sent_bytes": round(whole.most_bytes),
        "rounds": round(whole.most_rounds),
        "setup_bytes": round(found.setup_bytes),
        "setup_rounds": round(found.setup_rounds),
        "refill_bytes": round(whole.most_bytes - total.most_bytes),
        "refill_rounds": round(whole.most_rounds - total.most_rounds),
        "compute_seconds": found.compute_seconds(total) + whole.seconds - total.seconds,
        "seconds_error": whole.seconds_error,
        "seconds": query_seconds(found, total, where),
        "layers": [{"name": name, **_shown(found, cost, where)} for name, cost in costs.items()],
        "operations": _by_operation(found, segments),
    }


def query_cost(
    table: Table,
    spec: Spec,
    plan: Plan,
    ranges: Mapping[str, float] | None = None,
    rewrites: str = "all",
    guard: bool = False,
    batch: int = 1,
) -> Cost:
    """All operations of one query together, refills of transfers apart."""
    images = batch_for(table.protocol, batch)
    costs, _ = _priced(table, list(_segments(spec, plan, rewrites, ranges, guard, images)))
    return _sum(table, costs.values())


def query_seconds(table: Table, total: Cost, where: Network) -> float:
    """How long a query with this total takes over a network, refills of transfers included."""
    seconds = table.seconds(total, where)
    if table.ciphertexts:
        refills = Cheetah(table).refills(total)
        # One party sends a refill as a stream, without waiting: its actions do not take a delay each.
        seconds += refills.seconds + max(refills.sent_bytes) / where.bytes_per_second
    return seconds


def _segments(
    spec: Spec,
    plan: Plan,
    rewrites: str,
    ranges: Mapping[str, float] | None,
    guard: bool,
    batch: Batch,
) -> Iterator[tuple[str, list[Operation]]]:
    if rewrites == "dense":
        if batch.images > 1:
            raise RequestError("the graph as commonly written takes one image", "leave --batch away")
        return written_operations(without_pools(spec))
    if rewrites == "dense-rewritten":
        spec = without_pools(spec)
        return operations(Graph(spec, uniform_plan(spec), ranges=ranges or {}, batch=batch))
    known = {} if rewrites == "without-ranges" else ranges or {}
    return operations(Graph(spec, plan, ranges=known, guard=guard, batch=batch))


def _nothing(table: Table) -> Cost:
    ranks = len(next(iter(table.operations.values())).sent_bytes)
    return Cost((0.0,) * ranks, (0.0,) * ranks)


def _sum(table: Table, costs: Iterable[Cost]) -> Cost:
    total = _nothing(table)
    for cost in costs:
        total += cost
    return total


def _priced(table: Table, segments: list[tuple[str, list[Operation]]]) -> tuple[dict[str, Cost], Cost]:
    """The cost of each segment, and what refills add to the whole."""
    if not table.ciphertexts:
        price: Callable[[Operation], Cost] = lambda o: table.linear(o.name, o.sizes)  # noqa: E731
        return {name: _sum(table, map(price, found)) for name, found in segments}, _nothing(table)
    session = Cheetah(table)
    queries = [
        {name: _sum(table, map(session.cost, found)) for name, found in segments}
        for _ in range(SESSION_QUERIES)
    ]
    mean = {
        name: _scaled(_sum(table, (q[name] for q in queries)), 1 / SESSION_QUERIES) for name, _ in segments
    }
    return mean, session.refills(_sum(table, mean.values()))


def _scaled(cost: Cost, by: float) -> Cost:
    return Cost(
        tuple(by * b for b in cost.sent_bytes),
        tuple(by * r for r in cost.rounds),
        by * cost.seconds,
        by * cost.bytes_variance,
        by * cost.rounds_variance,
        by * cost.transfer_bytes,
        by * cost.seconds_error,
    )


def _shown(table: Table, cost: Cost, where: Network) -> dict[str, Any]:
    return {
        "sent_bytes": round(max(cost.sent_bytes)),
        "rounds": round(max(cost.rounds)),
        "seconds": table.seconds(cost, where),
    }


def _by_operation(table: Table, segments: list[tuple[str, list[Operation]]]) -> list[dict[str, Any]]:
    """Bytes and rounds by kind of operation, the largest first."""
    counted = Counter(operation for _, found in segments for operation in found)
    session = Cheetah(table) if table.ciphertexts else None
    totals: dict[str, Cost] = {}
    for operation, times in counted.items():
        for _ in range(times if session else 1):
            cost = (
                session.cost(operation) if session else table.linear(operation.name, operation.sizes, times)
            )
            totals[operation.name] = totals.get(operation.name, _nothing(table)) + cost
    rows = [
        {"name": name, "sent_bytes": round(max(c.sent_bytes)), "rounds": round(max(c.rounds))}
        for name, c in totals.items()
    ]
    return sorted(rows, key=lambda row: -row["sent_bytes"])
