"""What a plan must keep to beside its budget in cost: numbers of exact sites, and amounts in other units.

A cap on sites is met by saying beforehand which sites may become exact. The most valuable ones are named
first; a layer that then spends nothing on its few is passed over, and its share goes to layers that do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from privit.cost.budgets.budget import Budget
from privit.cost.budgets.ladder import Losses
from privit.cost.budgets.price import Price, Unit
from privit.cost.budgets.pricing import Pricer
from privit.plan import Plan, site_budget
from privit.spec import KINDS, Granularity, Spec, sites
from privit.train.descent.binarize import keep_ranked


@dataclass(frozen=True)
class Caps:
    """The most exact sites of some kinds, and the most in some units; nothing by default."""

    sites: Mapping[str, int] = field(default_factory=dict)
    amounts: Mapping[str, float] = field(default_factory=dict)

    def broken(self, plan: Plan, price: Price, spec: Spec, ranges: Mapping[str, float]) -> bool:
        """Whether a plan keeps or costs more than it may, in a model with these ranges."""
        if any(sum(plan.kept(kind)) > most for kind, most in self.sites.items()):
            return True
        return any(
            Pricer(spec, replace(price, unit=cast(Unit, unit)), ranges).cost(plan) > most
            for unit, most in self.amounts.items()
        )


NO_CAPS = Caps()


def caps_of(budget: Budget, spec: Spec, granularity: Granularity) -> Caps:
    """The caps of a budget in cost, shares as numbers of sites."""
    shapes = sites(spec, granularity)
    totals = {kind: sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes[kind]) for kind in KINDS}
    counts = {kind: site_budget(value, totals[kind], kind) for kind, value in budget.sites.items()}
    return Caps(counts, dict(budget.caps))


def handed_out(caps: Caps, losses: Losses, plan_for: Callable[[Losses], Plan]) -> Plan:
    """The plan of a budget with the capped sites in the layers that can pay for them."""
    open_layers = {kind: [True] * len(losses[kind]) for kind in KINDS}
    while True:
        may = {kind: _named(caps, kind, losses, open_layers[kind]) for kind in KINDS}
        plan = plan_for(may)
        passed = {
            kind: [
                bool(named.any()) and not kept for named, kept in zip(may[kind], plan.kept(kind), strict=True)
            ]
            for kind in caps.sites
            if any(plan.kept(kind))
        }
        if not any(any(layers) for layers in passed.values()):
            return plan
        for kind, layers in passed.items():
            open_layers[kind] = [o and not p for o, p in zip(open_layers[kind], layers, strict=True)]


def _named(caps: Caps, kind: str, losses: Losses, open_layers: list[bool]) -> list[np.ndarray]:
    """For each layer which sites may become exact: as many as the cap, the most valuable ones."""
    worth = [np.asarray(layer[0 if len(layer) == 1 else -2]) for layer in losses[kind]]
    if kind not in caps.sites:
        return [np.ones(layer.shape, bool) for layer in worth]
    shown = [
        layer if is_open else np.full(layer.shape, -1.0)
        for layer, is_open in zip(worth, open_layers, strict=True)
    ]
    offered = sum(layer.size for layer, is_open in zip(worth, open_layers, strict=True) if is_open)
    count = min(caps.sites[kind], offered)
    return keep_ranked(shown, count)
