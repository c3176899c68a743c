"""Plans by counts: so many exact sites in each layer, where nothing is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from privit.plan import Plan, plan_from_counts, plan_from_ids
from privit.spec import KINDS, Granularity, Spec

Layers = dict[str, tuple[np.ndarray, ...]]
"""For each kind, the operator ids of each layer."""


def counts_problems(kept: Mapping[str, Sequence[int]], granularity: Granularity) -> list[str]:
    """Everything that is wrong with counts per layer, whatever the model, in sentences."""
    known = ", ".join(KINDS)
    found = [f"sites of {kind} are counted, but there are {known}" for kind in kept if kind not in KINDS]
    for kind in KINDS:
        have, need = granularity.of(kind), Granularity().of(kind)
        if kind in kept and have != need:
            found.append(f"sites of {kind} are counted by {need}, but switched by {have}")
    return found


def counted_layers(
    spec: Spec,
    kept: Mapping[str, Sequence[int]],
    seed: int,
    exact: dict[str, str],
    stand_in: dict[str, str],
) -> Layers:
    """What stands at the sites of the kinds that are counted, as in `plan_from_counts`; no other kinds.

    Raises:
        BudgetError: If the counts do not fit the model.
    """
    if not kept:
        return {}
    nothing = [0] * spec.depth
    # A kind without counts draws its sites too, so that the others lie where they would beside any.
    gelu, softmax = (list(kept.get(kind, nothing)) for kind in ("gelu", "softmax"))
    norms = list(kept["norm"]) if "norm" in kept else None
    plan = plan_from_counts(spec, gelu, softmax, seed, exact, stand_in, norms)
    return {kind: plan.layers[kind] for kind in kept}


def with_layers(plan: Plan, layers: Layers) -> Plan:
    """The plan with these layers of some kinds in place of its own."""
    return plan_from_ids(plan.granularity, {kind: list(ids) for kind, ids in (plan.layers | layers).items()})
