"""The search under budgets in cost: penalties from the cost model, and cuts that spend a budget.

The penalty of a switch is what its site costs; on top, every layer and kind has a charge that falls
away only when the whole group is empty. The charge acts through the group's Euclidean norm (a group lasso):
its pull on a switch is the charge times c / |c|, which grows on the last ones standing, so that groups empty
for good instead of keeping a few stray sites each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from privit.config import Descent, SearchConfig
from privit.cost.budgets.budget import Budget
from privit.cost.budgets.ladder import make_ladder
from privit.cost.budgets.marginal import Charges, charges
from privit.operators import operator
from privit.plan import Plan
from privit.spec import KINDS, Granularity, Spec
from privit.train.descent.afford import describe_cost, settle
from privit.train.descent.caps import NO_CAPS, Caps, caps_of
from privit.train.descent.cost_ground import Ground
from privit.train.descent.descent import Level, SearchStage, Snapshot
from privit.train.loop.schedule import next_penalty, start_penalty
from privit.train.stages import planned_student
from privit.train.student.vit import Student

PER_MILLE = 1000
"""The cost that is left is counted in parts of a thousand, between the cheapest model and the dense one."""
NEVER = 0.02
"""What a switch at zero still counts for, so that sites of equal cost keep their order."""


@dataclass(frozen=True)
class CostLevel(Level):
    """A budget in cost, and what its plan must keep to besides."""

    cost: float = 0.0
    caps: Caps = NO_CAPS


def cost_levels(budgets: tuple[Budget, ...], spec: Spec, granularity: Granularity) -> list[CostLevel]:
    """The budgets in the order in which a descent meets them."""
    levels = [
        CostLevel(budget.name, {}, float(budget.cost or 0), caps_of(budget, spec, granularity))
        for budget in budgets
    ]
    return sorted(levels, key=lambda level: -level.cost)


class CostStage(SearchStage):
    """A search whose budgets are in cost; both kinds go down together, under one penalty.

    `spare` holds parameters of operators that a cut may use and the student does not hold.
    """

    def __init__(
        self,
        student: Student,
        config: SearchConfig,
        levels: list[CostLevel],
        snapshot: Snapshot,
        ground: Ground,
    ):
        super().__init__(student, config, list(levels), snapshot)
        self.found, self.spare, self.pixels = ground.affordable, dict(ground.spare), ground.pixels
        self.charges: Charges = charges(self.found.pricer, student.plan(-1.0), self._emptied())
        self.descent = _joint(config, self.sizes)
        joint = start_penalty(self.descent, PER_MILLE)
        self.penalties = dict.fromkeys(KINDS, joint)
        self.costs: dict[str, float] = {}
        self.kept_before: int | None = None

    def _emptied(self) -> Plan:
        """The plan in which every switch is at zero."""
        return self.student.plan(2.0)

    def active_cost(self) -> float:
        """What the plan costs whose exact sites are the switches above epsilon."""
        return self.found.cost(self.student.plan(self.settings.epsilon))

    def _slope(self, kind: str, layer: int, switch: torch.Tensor) -> torch.Tensor | float:
        site, group = self.charges.site[kind][layer], self.charges.group[kind][layer]
        value = switch.detach()
        norm = value.norm() * value.numel() ** 0.5
        pull = group * value / norm if float(norm) > 0 else torch.zeros_like(value)
        return self.penalties[kind].value * (site + pull)

    def _left(self) -> int:
        """The cost above the cheapest model's, of the dense model's, in parts of a thousand."""
        share = (self.active_cost() - self.charges.floor) / max(self.charges.span, 1e-300)
        return round(PER_MILLE * share)

    def _press(self, record: dict[str, Any], may_grow: bool) -> None:
        record["active_cost"] = self.active_cost()
        if self._moving():
            joint = next_penalty(
                self.penalties[KINDS[0]],
                self._left(),
                self.descent,
                PER_MILLE,
                may_grow,
            )
            self.penalties = dict.fromkeys(KINDS, joint)

    def _met(self, level: Level) -> list[str]:
        assert isinstance(level, CostLevel)
        moving = self._moving()
        gone = all(self.count(kind) == 0 for kind in moving)
        return moving if gone or self.active_cost() <= level.cost else []

    def site_losses(self) -> dict[str, list[np.ndarray]]:
        """The loss of each choice at each site: as measured, less what was learned to do without."""
        found: dict[str, list[np.ndarray]] = {}
        for kind in KINDS:
            if self.student.frozen(kind):
                found[kind] = list(self.found.losses[kind])
                continue
            found[kind] = []
            for layer, value in enumerate(self.values(kind)):
                found[kind].append(self._layer_losses(kind, layer, value))
        return found

    def _layer_losses(self, kind: str, layer: int, value: np.ndarray) -> np.ndarray:
        measured = np.asarray(self.found.losses[kind][layer])
        own = self.found.options[kind].index(self.student.sites_of(kind)[layer].stand_in.name)
        history = self.history[kind][layer]
        # A switch that has gone says nothing more, but how long it stayed up does.
        learned = np.maximum(value, NEVER * (1 + history / max(float(history.max(initial=0)), 1e-12)))
        losses = np.maximum(measured - measured[own], 0) + learned * measured[own]
        # A stand-in above the one that was trained along is no better than that.
        losses[own:-1] = losses[own]
        losses[-1] = 0.0
        return losses

    def _cut(self, level: Level) -> Plan:
        """A plan near the budget, made in a moment: for watching, not for keeping."""
        assert isinstance(level, CostLevel)
        found, losses = self.found, self.site_losses()
        ladder = make_ladder(found.pricer, found.granularity, found.options, losses, thorough=False)
        return ladder.plan(ladder.index_for(max(level.cost, ladder.floor)))

    def _last_cut(self, level: Level) -> Plan:
        assert isinstance(level, CostLevel)
        found = replace(self.found, losses=self.site_losses(), _ladder=None, _pricer=None)
        cut = settle(
            found,
            level.cost,
            lambda plan: planned_student(self.student.spec, plan, self._weights()),
            self.pixels,
            self.kept_before,
            level.caps,
        )
        self.found.use_ranges(found.ranges)
        self.costs[level.name] = cut.predicted_cost
        plan = cut.student.plan()
        self.kept_before = sum(sum(plan.kept(kind)) for kind in KINDS)
        return plan

    def _weights(self) -> dict[str, np.ndarray]:
        return self.spare | self.student.weights()

    def _excess(self) -> str:
        level = self.levels[-1]
        assert isinstance(level, CostLevel)
        price = self.found.price
        return (
            f"the active sites still cost {price.show(self.active_cost())}, above the budget of "
            f"{price.show(level.cost)}"
        )

    def describe(self, level: CostLevel) -> dict[str, Any]:
        """What result.json says of a budget's cost."""
        return describe_cost(self.found.price, self.costs[level.name], level.cost)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The search's own state, what the cuts so far cost, and the ranges that were priced."""
        numbers, arrays = super().state()
        own = {"costs": self.costs, "kept_before": self.kept_before, "ranges": self.found.ranges}
        return numbers | own, arrays

    def load_state(self, numbers: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Sets back what `state` gave."""
        super().load_state(numbers, arrays)
        self.costs, self.kept_before = dict(numbers["costs"]), numbers["kept_before"]
        self.found.use_ranges(numbers["ranges"])


def cost_stage(
    student: Student,
    config: SearchConfig,
    levels: list[CostLevel],
    snapshot: Snapshot,
    ground: Ground,
    initial: Mapping[str, np.ndarray] | None,
) -> CostStage:
    """The stage, its student mixing in each layer what the plan for the smallest budget has there."""
    last = levels[-1]
    use_stand_ins_(student, ground.affordable.plan(last.cost, caps=last.caps), config.free)
    student.load_weights(student.weights() | dict(ground.spare) | dict(initial or {}))
    return CostStage(student, config, levels, snapshot, ground)


def use_stand_ins_(student: Student, plan: Plan, free: Mapping[str, str]) -> None:
    """In layers where most of a plan's stand-ins are free, the free one is mixed in."""
    for kind, name in free.items():
        entry = operator(name, kind)
        for layer, ids in enumerate(plan.layers[kind]):
            sites = student.sites_of(kind)[layer]
            others = int((ids == sites.stand_in.id).sum())
            if int((ids == entry.id).sum()) > others:
                sites.set_stand_in(entry)


def _joint(config: SearchConfig, sizes: Mapping[str, int]) -> Descent:
    """One descent for both kinds: GELU's penalty and growth; a drop in sites is taken as a share of them."""
    own = config.descents.get("cost", config.descents["gelu"])
    drop = own.min_drop if isinstance(own.min_drop, float) else own.min_drop / max(sizes["gelu"], 1)
    return replace(own, min_drop=float(drop))
