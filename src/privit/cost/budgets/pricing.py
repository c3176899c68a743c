"""What a plan costs in one unit, and quickly, exactly or piece by piece.

`Pricer.cost` gives what `privit.cost.estimate` gives for the whole plan. `Pricer.cell` prices one layer's
sites of one kind alone, so that thousands of choices are weighed without estimating the model again for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privit.cost.budgets.price import ENGINE_UNITS, PROFILES, Price, Unit
from privit.cost.estimate import estimate
from privit.cost.network import network
from privit.cost.spu.cheetah import Cheetah
from privit.cost.spu.predict import SESSION_QUERIES, query_seconds
from privit.cost.spu.table import Cost, Table, shipped_table
from privit.plan import Plan, uniform_plan
from privit.program.choices import batch_for
from privit.program.graph import Graph
from privit.program.operation import Operation, Recorder
from privit.program.operations import norms, operations
from privit.program.operations.attention import attention
from privit.program.operations.mlp import mlp
from privit.spec import KINDS, NORM_PLACES, Granularity, Spec

CELLS = {"gelu": mlp, "softmax": attention, "norm": norms}


@dataclass
class Pricer:
    """The cost of plans of one model in one unit; nothing of it is measured.

    `ranges` are those of an artifact (train/fixed_point/ranges.py): with them short functions are counted.
    """

    spec: Spec
    price: Price
    ranges: Mapping[str, float] = field(default_factory=dict)
    _prices: dict[Operation, np.ndarray] = field(default_factory=dict, repr=False)
    _cells: dict[tuple[object, ...], np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def on_engine(self) -> bool:
        """Whether the unit is one of SPU's, and not counted in gates."""
        return self.price.unit in ENGINE_UNITS

    @property
    def table(self) -> Table:
        """The protocol's measured table."""
        return shipped_table(self.price.protocol)

    def cost(self, plan: Plan) -> float:
        """What one prediction under the plan costs, exactly as `privit cost` estimates it."""
        if not self.on_engine:
            return float(estimate(self.spec, plan, PROFILES[self.price.unit]).total)
        return self.value(self._session(self._listed(plan)))

    def cell(self, kind: str, layer: int, ids: np.ndarray, granularity: Granularity) -> np.ndarray:
        """One layer's sites of one kind alone, as a vector that adds up over cells; `value` reads it.

        On CHEETAH products left over from other operations are not seen here, but they are by `cost`.
        """
        # Which of the LayerNorms it is matters, of other sites only how many of each there are.
        signature = ids.tobytes() if kind == "norm" else _signature(ids)
        key = (kind, *self._like(kind, layer), granularity, signature)
        if key not in self._cells:
            self._cells[key] = self._cell(kind, layer, ids, granularity)
        return self._cells[key]

    def rest(self, granularity: Granularity) -> np.ndarray:
        """What no plan changes: embedding and head, as a vector beside the cells'."""
        plan = uniform_plan(self.spec, granularity=granularity)
        cells = sum(
            self.cell(kind, layer, ids, granularity)
            for kind in KINDS
            for layer, ids in enumerate(plan.layers[kind])
        )
        if not self.on_engine:
            return np.array([self.cost(plan)]) - cells
        return self._session(self._listed(plan)) - cells

    def value(self, total: np.ndarray) -> float:
        """The cost that a sum of cells and rest stands for."""
        return self.amount(total, self.price.unit) if self.on_engine else float(total[0])

    def weight(self, total: np.ndarray) -> float:
        """By what choices are weighed against each other: the cost."""
        return self.value(total)

    def _cell(self, kind: str, layer: int, ids: np.ndarray, granularity: Granularity) -> np.ndarray:
        plan = uniform_plan(self.spec, granularity=granularity)
        layers = dict(plan.layers)
        layers[kind] = (*layers[kind][:layer], ids, *layers[kind][layer + 1 :])
        changed = Plan(granularity, layers)
        if not self.on_engine:
            return np.array([estimate(self.spec, changed, PROFILES[self.price.unit]).total], dtype=float)
        graph = self._graph(changed)
        note = Recorder(graph.batch)
        CELLS[kind](graph, layer, note)
        return self._session(note.operations)

    def _like(self, kind: str, layer: int) -> tuple[object, ...]:
        """What layers have in common whose cells cost the same."""
        graph = self._untouched
        spec = self.spec
        own: object = graph.scores(layer) if kind == "softmax" else None
        if kind == "norm":
            last = layer + 1 == spec.depth
            places = spec.norms[len(NORM_PLACES) * layer :][: len(NORM_PLACES) + last]
            own = spec.patches_before(layer), last, *(graph.root(name) for name in places)
        return graph.block(layer), spec.tokens_in(layer), graph.only_class_token(layer), layer == 0, own

    @cached_property
    def _untouched(self) -> Graph:
        return self._graph(uniform_plan(self.spec))

    def _graph(self, plan: Plan) -> Graph:
        return Graph(self.spec, plan, ranges=self.ranges, batch=batch_for(self.price.protocol, 1))

    def _listed(self, plan: Plan) -> list[Operation]:
        return [operation for _, part in operations(self._graph(plan)) for operation in part]

    def _session(self, listed: list[Operation]) -> np.ndarray:
        """A query's cost as a vector: on CHEETAH the mean over a few queries of one session."""
        if not self.table.ciphertexts:
            return self._sum([self._linear(operation) for operation in listed])
        session, found = Cheetah(self.table), []
        for _ in range(SESSION_QUERIES):
            for operation in listed:
                # Only products take from the session's store: all else costs the same each time.
                if self._takes(operation):
                    found.append(_vector(session.cost(operation)))
                else:
                    if operation not in self._prices:
                        self._prices[operation] = _vector(session.cost(operation))
                    found.append(self._prices[operation])
        return self._sum(found) / SESSION_QUERIES

    def _takes(self, operation: Operation) -> bool:
        named = not operation.name.startswith(("matmul", "max"))
        return named and self.table.entry(operation.name).products > 0

    def _linear(self, operation: Operation) -> np.ndarray:
        if operation not in self._prices:
            self._prices[operation] = _vector(self.table.linear(operation.name, operation.sizes))
        return self._prices[operation]

    def _sum(self, found: list[np.ndarray]) -> np.ndarray:
        ranks = len(next(iter(self.table.operations.values())).sent_bytes)
        return np.sum(found, axis=0) if found else np.zeros(2 * ranks + _SCALARS)

    def amount(self, total: np.ndarray, unit: Unit) -> float:
        """What a sum of cells and rest comes to in any unit of the engine."""
        cost = _cost(total)
        if unit == "seconds":
            return query_seconds(self.table, cost, network(self.price.network))
        if self.table.ciphertexts:
            cost += Cheetah(self.table).refills(cost)
        return float(round(cost.most_bytes if unit == "bytes" else cost.most_rounds))


@dataclass
class JointPricer(Pricer):
    """Budgets in several units of the engine as one: the cost is that of the one that is spent most.

    `most` has the price's own budget and the others. Choices are weighed by what they take of all budgets:
    by the fullest alone, whatever the others pay for would look free.
    """

    most: Mapping[Unit, float] = field(default_factory=dict)

    def value(self, total: np.ndarray) -> float:
        """The largest share of a budget, as an amount of the price's unit."""
        return self.most[self.price.unit] * max(self._shares(total))

    def weight(self, total: np.ndarray) -> float:
        """The mean share of the budgets, as an amount of the price's unit."""
        shares = self._shares(total)
        return self.most[self.price.unit] * sum(shares) / len(shares)

    def _shares(self, total: np.ndarray) -> list[float]:
        return [self.amount(total, unit) / most for unit, most in self.most.items()]


_SCALARS = 5


def _vector(cost: Cost) -> np.ndarray:
    more = (cost.seconds, cost.bytes_variance, cost.rounds_variance, cost.transfer_bytes, cost.seconds_error)
    return np.array((*cost.sent_bytes, *cost.rounds, *more))


def _cost(vector: np.ndarray) -> Cost:
    ranks = (len(vector) - _SCALARS) // 2
    values = [float(v) for v in vector]
    return Cost(tuple(values[:ranks]), tuple(values[ranks : 2 * ranks]), *values[2 * ranks :])


def _signature(ids: np.ndarray) -> tuple[object, ...]:
    """What of a layer's sites its cost depends on: the class token's, and how many of each in each head."""
    rows = ids.reshape(1, -1) if ids.ndim < 2 or ids.shape[1] > 4096 else ids
    return tuple((int(row[0]), np.bincount(row, minlength=1).tobytes()) for row in rows)
