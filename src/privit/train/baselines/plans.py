"""Plans that no search made, with exactly the counts of one that was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from privit.errors import BudgetError
from privit.operators import STAND_IN, operator
from privit.plan import Plan, plan_from_ids, plan_from_kept, site_budget
from privit.spec import PAPER_KINDS, Granularity, Shape, Spec, sites

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


def spread_plan(
    spec: Spec,
    gelu_budget: float,
    softmax_budget: float,
    granularity: Granularity | None = None,
    exact: dict[str, str] | None = None,
    stand_in: dict[str, str] | None = None,
) -> Plan:
    """Spreads a budget evenly: over the layers, and in a layer over its tokens, the class token first.

    Budgets are counts, or shares given as floats. Every layer keeps the same number of sites, or one more;
    a token's softmax rows are kept in every head before the next token's.
    """

    def order(kind: str, shapes: list[Shape]) -> np.ndarray:
        starts = np.cumsum([0] + [_count([shape]) for shape in shapes])[:-1]
        rounds = [start + _by_token(kind, s, spread=True) for start, s in zip(starts, shapes, strict=True)]
        # Every layer's first choice, then every layer's second, and so on.
        ranks = np.concatenate([np.arange(len(layer)) for layer in rounds])
        return np.concatenate(rounds)[np.argsort(ranks, kind="stable")]

    budgets = {"gelu": gelu_budget, "softmax": softmax_budget}
    return _plan_in_order(spec, budgets, granularity, exact, stand_in, order)


def without_last_layers(
    plan: Plan, layers: int, stand_in: dict[str, str] | None = None, kinds: tuple[str, ...] = PAPER_KINDS
) -> Plan:
    """The plan with its last `layers` layers turned to stand-ins (the paper's layer-wise Taylorization).

    Only `kinds` are turned. The stand-ins are the paper's unless named.
    """
    depth = len(plan.layers[kinds[0]])
    if not 0 <= layers <= depth:
        raise BudgetError(
            f"{layers} layers are to be turned to stand-ins, but the model has {depth}", f"give 0 to {depth}"
        )
    names = STAND_IN | (stand_in or {})
    turned = {
        kind: [
            np.full(ids.shape, operator(names[kind], kind).id) if i >= depth - layers else ids
            for i, ids in enumerate(arrays)
        ]
        if kind in kinds
        else list(arrays)
        for kind, arrays in plan.layers.items()
    }
    return plan_from_ids(plan.granularity, turned)


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
    for kind in budgets:
        total = _count(shapes[kind])
        mask = np.zeros(total, dtype=bool)
        mask[order(kind, shapes[kind])[: site_budget(budgets[kind], total, kind)]] = True
        parts = np.split(mask, np.cumsum([_count([shape]) for shape in shapes[kind]])[:-1])
        kept[kind] = [part.reshape(shape) for part, shape in zip(parts, shapes[kind], strict=True)]
    return plan_from_kept(granularity, kept, exact, stand_in)


def _by_token(kind: str, shape: Shape, spread: bool = False) -> np.ndarray:
    """Flat indices of one layer's sites, token by token: rows of softmax are stored head by head.

    With `spread`, tokens come so that any number of the first lies evenly over the image.
    """
    indices = np.arange(_count([shape])).reshape(shape)
    by_token = indices.T if kind == "softmax" else indices
    if spread and by_token.ndim:
        by_token = by_token[_van_der_corput(len(by_token))]
    return by_token.ravel()


def _van_der_corput(count: int) -> list[int]:
    """0 to count - 1 by reversed bits: any beginning of them lies evenly over the whole."""
    bits = max(1, (count - 1).bit_length())
    numbers = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(2**bits))
    return [number for number in numbers if number < count]


def _count(shapes: list[Shape]) -> int:
    return sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes)
