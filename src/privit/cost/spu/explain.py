"""What each layer's exact GELUs or softmaxes cost a query on SPU: by pricing the plan again without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from privit.cost.network import Network
from privit.cost.network import network as named_network
from privit.cost.spu.predict import query_cost, query_seconds
from privit.cost.spu.table import Cost, Table, shipped_table
from privit.errors import RequestError
from privit.operators import BY_NAME, STAND_IN
from privit.plan import Plan, plan_from_ids
from privit.spec import KINDS, Spec

UNITS = ("bytes", "rounds", "seconds")


@dataclass(frozen=True)
class SpuRemoval:
    """What a query saves, in `unit`, where `stand_in` takes the place of a layer's exact sites of one kind.

    `site_saving` is of the last site alone, which saves no round as long as others stay; `group_saving` of
    all of them. `share` is the latter's part of the whole query.
    """

    layer: int
    kind: str
    operator: str
    stand_in: str
    sites: int
    site_saving: float
    group_saving: float
    share: float
    unit: str


def explain_spu(
    spec: Spec,
    plan: Plan,
    unit: str = "seconds",
    protocol: str = "cheetah",
    network: str | Network = "lan",
    ranges: Mapping[str, float] | None = None,
    guard: bool = False,
    batch: int = 1,
) -> list[SpuRemoval]:
    """Per layer and kind what the exact sites cost, what is best removed next first.

    The stand-in is the one that most of the layer's other sites have, or the paper's where all are exact.
    """
    if unit not in UNITS:
        raise RequestError(f"no unit is called {unit!r}", "known: " + ", ".join(UNITS))
    table = shipped_table(protocol)
    where = named_network(network) if isinstance(network, str) else network

    def price(given: Plan) -> float:
        return _price(table, query_cost(table, spec, given, ranges, guard=guard, batch=batch), where, unit)

    whole = price(plan)
    removals = []
    for layer, kind, operator in _groups(plan):
        sites = plan.layers[kind][layer] == BY_NAME[operator].id
        stand_in = _stand_in(plan, kind, layer)
        if (kind, layer) == ("norm", 0) and BY_NAME[stand_in].family == "reused":
            # The first LayerNorm has nothing to reuse, so it stays.
            sites[0] = False
        if not sites.any():
            continue
        last = np.zeros_like(sites)
        last.reshape(-1)[np.flatnonzero(sites)[-1]] = True
        saving, one = (whole - price(_without(plan, kind, layer, which, stand_in)) for which in (sites, last))
        share = saving / whole if whole else 0.0
        count = int(sites.sum())
        removals.append(SpuRemoval(layer, kind, operator, stand_in, count, one, saving, share, unit))
    return sorted(removals, key=lambda r: (-r.group_saving, r.layer, r.kind))


def _price(table: Table, total: Cost, where: Network, unit: str) -> float:
    if unit == "seconds":
        return query_seconds(table, total, where)
    return total.most_bytes if unit == "bytes" else total.most_rounds


def _groups(plan: Plan) -> Iterator[tuple[int, str, str]]:
    for kind in KINDS:
        for layer in range(len(plan.layers[kind])):
            for entry in plan.operators(kind, layer):
                if entry.exact:
                    yield layer, kind, entry.name


def _stand_in(plan: Plan, kind: str, layer: int) -> str:
    ids = plan.layers[kind][layer]
    others = [entry for entry in plan.operators(kind, layer) if not entry.exact]
    return max(others, key=lambda entry: int((ids == entry.id).sum())).name if others else STAND_IN[kind]


def _without(plan: Plan, kind: str, layer: int, sites: np.ndarray, stand_in: str) -> Plan:
    layers = {name: [np.array(ids) for ids in found] for name, found in plan.layers.items()}
    layers[kind][layer][sites] = BY_NAME[stand_in].id
    return plan_from_ids(plan.granularity, layers)
