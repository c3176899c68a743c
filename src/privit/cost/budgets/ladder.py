"""From losses and a cost model to plans: one for every budget, at most 5 % below it and never above.

Every layer and kind has its way up (groups.py); merged by loss saved per cost they make plans from all cheap
to all exact (rungs.py). On the ladder cost, loss avoided and the number of exact sites never fall from one
plan to the next, and a budget gets the highest plan that it can pay: a larger one never keeps less, by
construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from privit.cost.budgets.groups import Group, Step, falling, steps
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.cost.budgets.rungs import Board, Rung, best_path
from privit.errors import BudgetError
from privit.operators import operator
from privit.plan import OWN_FACTOR, Plan, plan_from_ids
from privit.spec import KINDS, NORM_PLACES, Granularity, Shape, Spec, sites

CHEAPER_THAN_NOTHING = 1e-6
CELLS_EXACT, CELLS_ROUGH = 1e-9, 0.03
"""How far cells may lie from whole plans: on CHEETAH operations share what was prepared for others."""

Losses = Mapping[str, Sequence[np.ndarray]]
"""For each kind and layer an array (levels, *sites): the loss that each operator causes at each site."""


@dataclass
class Ladder:
    """Plans in the order of their cost."""

    pricer: Pricer
    granularity: Granularity
    options: dict[str, tuple[str, ...]]
    groups: list[Group]
    ways: list[list[Step]]
    rungs: list[Rung]
    _true: dict[int, float] = field(default_factory=dict)

    @property
    def floor(self) -> float:
        """What the cheapest plan costs."""
        return self.cost(0)

    def plan(self, index: int) -> Plan:
        """The plan of one rung."""
        shapes = sites(self.pricer.spec, self.granularity)
        layers: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS}
        for group, way, state in zip(self.groups, self.ways, self.rungs[index].states, strict=True):
            ids = _ids(self.options[group.kind], levels_at(group, way, state))
            layers[group.kind].append(ids.reshape(shapes[group.kind][group.layer]))
        return plan_from_ids(self.granularity, layers)

    def cost(self, index: int) -> float:
        """What one rung really costs: the whole plan estimated."""
        if index not in self._true:
            self._true[index] = self.pricer.cost(self.plan(index))
        return self._true[index]

    def index_for(
        self,
        budget: float,
        most_kept: int | None = None,
        fits: Callable[[Plan], bool] = lambda plan: True,
    ) -> int:
        """The highest rung within the budget; a budget below every plan is refused with the floor.

        `most_kept` is how many exact sites it may have, where a larger budget has already been served;
        `fits` what else its plan must keep to.
        """
        rough = self.pricer.on_engine and bool(self.pricer.table.ciphertexts)
        most = budget * (1 + (CELLS_ROUGH if rough else CELLS_EXACT))
        affordable = [
            i
            for i, rung in enumerate(self.rungs)
            if rung.cost <= most and (most_kept is None or rung.kept <= most_kept)
        ]
        for index in reversed(affordable):
            if self.cost(index) <= budget and fits(self.plan(index)):
                return index
        raise self.refusal(budget)

    def refusal(self, budget: float) -> BudgetError:
        """What to say of a budget that no plan meets."""
        return below_floor(self.pricer.price, budget, self.floor)


def below_floor(price: Price, budget: float, floor: float) -> BudgetError:
    """What to say of a budget below the cheapest plan, and what would lower that."""
    other = {"seconds": ", a faster network or another protocol", "bytes": " or another protocol"}
    return BudgetError(
        f"the budget is {price.show(budget)}, but all cheap costs {price.show(floor)} under {price.setting}; "
        "nothing below that is possible for this model",
        f"a smaller image, a smaller model{other.get(price.unit, '')} would lower it",
    )


def make_ladder(
    pricer: Pricer,
    granularity: Granularity,
    options: Mapping[str, Sequence[str]],
    losses: Losses,
    thorough: bool = True,
    may: Losses | None = None,
    most_reused: int | None = None,
) -> Ladder:
    """The ladder of a model: `options` name for each kind what may stand at a site, the exact one last.

    One that is not `thorough` is made in a moment and has wider steps. `may` says for each kind and layer
    which sites may become exact, where not all may; `most_reused` how many LayerNorms in a row may reuse
    another's factor.
    """
    named = {kind: tuple(options[kind]) for kind in KINDS}
    shapes = sites(pricer.spec, granularity)
    read = {k: [_read(pricer, k, i, shape) for i, shape in enumerate(shapes[k])] for k in KINDS}
    groups = [
        _group(
            k,
            i,
            least_levels(k, i, shapes[k][i], named[k], most_reused),
            _heads(k, shapes[k][i]),
            losses[k][i] * read[k][i],
            None if may is None else may[k][i],
        )
        for k in KINDS
        for i in range(pricer.spec.depth)
    ]
    rest = pricer.rest(granularity)
    start = [_cell(pricer, g, g.start, named, granularity, shapes) for g in groups]
    base = rest + np.sum(start, axis=0)
    floor = pricer.value(base)

    def way(group: Group, own: np.ndarray) -> list[Step]:
        def cost(levels: np.ndarray) -> float:
            return pricer.weight(base - own + _cell(pricer, group, levels, named, granularity, shapes))

        return steps(group, cost, floor * CHEAPER_THAN_NOTHING)

    ways = [way(group, own) for group, own in zip(groups, start, strict=True)]
    vectors = [
        np.stack([own, *(_cell(pricer, g, s.levels, named, granularity, shapes) for s in found)])
        for g, own, found in zip(groups, start, ways, strict=True)
    ]
    board = Board(
        vectors,
        [_over(g, w, lambda g, at: g.loss(g.start) - g.loss(at)) for g, w in zip(groups, ways, strict=True)],
        [_over(g, w, lambda g, at: (at == g.top).sum()) for g, w in zip(groups, ways, strict=True)],
        [np.array([step.worth for step in found]) for found in ways],
        [np.array([step.target == g.top for step in w], bool) for g, w in zip(groups, ways, strict=True)],
        np.array([group.kind for group in groups]),
        [_free([pricer.weight(base - v[0] + each) for each in v]) for v in vectors],
        rest,
        pricer.value,
    )
    return Ladder(pricer, granularity, named, groups, ways, best_path(board, thorough))


def _group(
    kind: str, layer: int, least: np.ndarray, heads: np.ndarray, losses: np.ndarray, may: np.ndarray | None
) -> Group:
    levels = len(losses)
    flat = losses.reshape(levels, -1)
    # Where a site cannot go it loses nothing, or that would outweigh what all others lose.
    flat = np.take_along_axis(flat, np.maximum(np.arange(levels)[:, None], least), axis=0)
    allowed = None if may is None else np.ravel(may).astype(bool)
    return Group(kind, layer, falling(flat), heads, allowed, least)


def least_levels(
    kind: str, layer: int, shape: Shape, options: Sequence[str], most_reused: int | None = None
) -> np.ndarray:
    """The level that each site of a layer has at least, flat.

    The first LayerNorm has nothing to reuse; after `most_reused` that do reuse, one has its own factor again.
    """
    levels = np.zeros(shape, dtype=np.int64)
    if kind == "norm" and "reused_norm" in options:
        own = next(i for i, name in enumerate(options) if operator(name).family in OWN_FACTOR)
        for place in range(shape[0]):
            before = len(NORM_PLACES) * layer + place
            if before == 0 or (most_reused is not None and before % (most_reused + 1) == 0):
                levels[place] = own
    return levels.reshape(-1)


def cheapest_plan(
    spec: Spec,
    granularity: Granularity,
    options: Mapping[str, Sequence[str]],
    most_reused: int | None = None,
) -> Plan:
    """The plan in which every site has the first of its options that it can have."""
    layers = {
        kind: [
            _ids(tuple(options[kind]), least_levels(kind, i, shape, options[kind], most_reused)).reshape(
                shape
            )
            for i, shape in enumerate(shapes)
        ]
        for kind, shapes in sites(spec, granularity).items()
    }
    return plan_from_ids(granularity, layers)


def _free(costs: list[float]) -> np.ndarray:
    """For each state of a group the last one that costs no more."""
    states = range(len(costs))
    return np.array([max(s for s in states[first:] if costs[s] <= costs[first]) for first in states])


def _over(group: Group, way: list[Step], figure: Callable[[Group, np.ndarray], float]) -> np.ndarray:
    """A figure for each state of a group."""
    return np.array([figure(group, levels_at(group, way, state)) for state in range(len(way) + 1)])


def levels_at(group: Group, way: list[Step], state: int) -> np.ndarray:
    """The levels of a group's sites after so many steps."""
    return way[state - 1].levels if state else group.start


def _read(pricer: Pricer, kind: str, layer: int, shape: Shape) -> np.ndarray:
    """Ones, and zeros at sites that are never computed: of the last block only the class token is read."""
    found, spec = np.ones(shape), pricer.spec
    if kind == "norm":
        return _read_norms(pricer, layer, found)
    per_token = len(shape) == 2 or (kind == "gelu" and len(shape) == 1)
    if pricer.on_engine and spec.pooling == "cls" and layer == spec.depth - 1 and per_token:
        found[(slice(1, None),) if kind == "gelu" else (slice(None), slice(1, None))] = 0
    return found


def _read_norms(pricer: Pricer, layer: int, found: np.ndarray) -> np.ndarray:
    """Where the class token has sites of its own, the last LayerNorms are read for some tokens only."""
    spec = pricer.spec
    if found.ndim == 2 and found.shape[1] == 2 and layer == spec.depth - 1:
        unread = 1 if spec.pooling == "cls" else 0
        found[len(NORM_PLACES) :, unread] = 0
        if pricer.on_engine and spec.pooling == "cls":
            found[1:, unread] = 0
    return found


def _heads(kind: str, shape: Shape) -> np.ndarray:
    if kind == "softmax" and len(shape) == 2:
        return np.repeat(np.arange(shape[0]), shape[1])
    return np.zeros(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)


def _ids(options: tuple[str, ...], levels: np.ndarray) -> np.ndarray:
    return np.array([operator(name).id for name in options], dtype=np.uint8)[levels]


def _cell(
    pricer: Pricer,
    group: Group,
    levels: np.ndarray,
    options: dict[str, tuple[str, ...]],
    granularity: Granularity,
    shapes: dict[str, list[Shape]],
) -> np.ndarray:
    ids = _ids(options[group.kind], levels).reshape(shapes[group.kind][group.layer])
    return pricer.cell(group.kind, group.layer, ids, granularity)
