"""What a site costs beyond the others of its layer, and what the layer costs for having any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privit.cost.budgets.pricing import Pricer
from privit.plan import Plan
from privit.spec import KINDS


@dataclass(frozen=True)
class Charges:
    """Relative costs, per kind and layer, of a site and of a group; all together they sum to the sites.

    `floor` is the cost with no exact site, `span` what all exact sites add to it.
    """

    site: dict[str, list[float]]
    group: dict[str, list[float]]
    floor: float
    span: float


def charges(pricer: Pricer, exact: Plan, cheap: Plan) -> Charges:
    """The charges of going from `cheap` to `exact`, from differences of the cost model.

    A group's charge is what its first site costs more than its others do on average. Neither is negative, and
    a unit in which everything is free between the two plans charges every site alike.
    """
    granularity = cheap.granularity
    rest = pricer.rest(granularity)
    cells = {(k, i): pricer.cell(k, i, a, granularity) for k in KINDS for i, a in enumerate(cheap.layers[k])}
    base = rest + np.sum(list(cells.values()), axis=0)
    floor = pricer.value(base)
    site: dict[str, list[float]] = {kind: [] for kind in KINDS}
    group: dict[str, list[float]] = {kind: [] for kind in KINDS}
    sizes: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for layer, (low, high) in enumerate(zip(cheap.layers[kind], exact.layers[kind], strict=True)):
            others = base - cells[kind, layer]
            one = low.copy()
            one.reshape(-1)[:1] = high.reshape(-1)[:1]
            first = pricer.value(others + pricer.cell(kind, layer, one, granularity)) - floor
            whole = pricer.value(others + pricer.cell(kind, layer, high, granularity)) - floor
            count = low.size
            each = max((whole - first) / (count - 1), 0.0) if count > 1 else 0.0
            site[kind].append(each)
            group[kind].append(max(min(first, max(whole, 0.0)) - each, 0.0))
            sizes[kind].append(count)
    total = sum(n * s + g for k in KINDS for n, s, g in zip(sizes[k], site[k], group[k], strict=True))
    # A kind that is the same in both plans is not searched.
    searched = [
        k for k in KINDS if any((a != b).any() for a, b in zip(cheap.layers[k], exact.layers[k], strict=True))
    ]
    count = sum(sum(sizes[kind]) for kind in searched or KINDS)
    if total <= 0:
        ones, zeros = ({k: [each] * len(site[k]) for k in KINDS} for each in (1.0, 0.0))
        return Charges(ones, zeros, floor, 0.0)
    scale = count / total
    return Charges(
        {k: [scale * s for s in site[k]] for k in KINDS},
        {k: [scale * g for g in group[k]] for k in KINDS},
        floor,
        pricer.cost(exact) - floor,
    )
