"""Plans that no search made, with exactly the counts of one that was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from privit.plan import Plan, plan_from_kept, site_budget
from privit.spec import KINDS, Granularity, Shape, Spec, sites

Order = Callable[[str, list[Shape]], np.ndarray]
"""Which sites to keep first: flat indices over all layers of a kind."""


def random_plan(
    spec: Spec,
    gelu_budget: float,
    softmax_budget: float,
    seed: int = 0,
    granularity: Granularity | None = None,
    exact: dict[str, str] | None = None,
    stand_in: dict[str, str] | None = None,
) -> Plan:
    """Keeps sites drawn at random over the whole model; budgets are counts, or shares given as floats."""
    generator = np.random.default_rng(seed)

    def order(kind: str, shapes: list[Shape]) -> np.ndarray:
        return generator.permutation(_count(shapes))

    budgets = {"gelu": gelu_budget, "softmax": softmax_budget}
    return _plan_in_order(spec, budgets, granularity, exact, stand_in, order)


def layerwise_plan(
    spec: Spec,
    gelu_budget: float,
    softmax_budget: float,
    granularity: Granularity | None = None,
    exact: dict[str, str] | None = None,
    stand_in: dict[str, str] | None = None,
) -> Plan:
    """Keeps whole layers from the first on; what is left of the budget goes to the next layer's first tokens.

    Budgets are counts, or shares given as floats. The class token comes first, in every head.
    """

    def order(kind: str, shapes: list[Shape]) -> np.ndarray:
        ends = np.cumsum([0] + [_count([shape]) for shape in shapes])
        return np.concatenate([start + _by_token(kind, s) for start, s in zip(ends, shapes, strict=False)])

    budgets = {"gelu": gelu_budget, "softmax": softmax_budget}
    return _plan_in_order(spec, budgets, granularity, exact, stand_in, order)


def _plan_in_order(
    spec: Spec,
    budgets: dict[str, float],
    granularity: Granularity | None,
    exact: dict[str, str] | None,
    stand_in: dict[str, str] | None,
    order: Order,
) -> Plan:
    granularity = granularity or Granularity()
    shapes = sites(spec, granularity)
    kept: dict[str, list[np.ndarray]] = {}
    for kind in KINDS:
        total = _count(shapes[kind])
        mask = np.zeros(total, dtype=bool)
        mask[order(kind, shapes[kind])[: site_budget(budgets[kind], total, kind)]] = True
        parts = np.split(mask, np.cumsum([_count([shape]) for shape in shapes[kind]])[:-1])
        kept[kind] = [part.reshape(shape) for part, shape in zip(parts, shapes[kind], strict=True)]
    return plan_from_kept(granularity, kept, exact, stand_in)


def _by_token(kind: str, shape: Shape) -> np.ndarray:
    """Flat indices of one layer's sites, token by token: rows of softmax are stored head by head."""
    indices = np.arange(_count([shape])).reshape(shape)
    return (indices.T if kind == "softmax" else indices).ravel()


def _count(shapes: list[Shape]) -> int:
    return sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes)
