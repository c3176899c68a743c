"""The search as a stage of the loop: penalties, counts, holding, cutting, snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from privit.config import SearchConfig
from privit.cost.budgets.budget import Budget
from privit.errors import BudgetError
from privit.operators import operator
from privit.plan import Plan, plan_from_ids, site_budget, uniform_plan
from privit.spec import KINDS, Spec, switched_kinds
from privit.train.descent.binarize import active, keep_above, keep_ranked
from privit.train.loop.loop import Loop, Stage
from privit.train.loop.schedule import next_penalty, penalty_from_json, penalty_to_json, start_penalty
from privit.train.stages import planned_student
from privit.train.student.vit import Student

Snapshot = Callable[[str, Plan, Mapping[str, np.ndarray], float], None]
"""Called with a budget's name, its plan, the weights and the validation accuracy when a budget is met."""


MAX_CUT_LOSS = 0.05
"""The share of validation accuracy that a cut may take without a warning."""


@dataclass(frozen=True)
class Level:
    """A budget in sites."""

    name: str
    sites: dict[str, int]


def levels_of(budgets: tuple[Budget, ...], spec: Spec, config: SearchConfig) -> list[Level]:
    """The budgets in sites, in the order in which a descent meets them; kinds not switched keep all."""
    whole = uniform_plan(spec, granularity=config.granularity)
    totals = {kind: whole.total(kind) for kind in KINDS}
    kinds, levels, first = switched_kinds(config.kinds), [], 0
    if operator(config.stand_in["norm"]).family == "reused":
        first = whole.layers["norm"][0][0].size
    for budget in budgets:
        asked = {"norm": 1.0} | budget.sites
        counts = {kind: site_budget(asked[kind], totals[kind], kind) for kind in kinds}
        # The first LayerNorm cannot be reused, so a budget below that is met by it alone.
        counts |= {"norm": max(counts["norm"], first)} if "norm" in kinds else {}
        levels.append(Level(budget.name, {k: counts[k] if k in config.kinds else totals[k] for k in kinds}))
    levels.sort(key=lambda level: [-level.sites[kind] for kind in kinds])
    for larger, smaller in pairwise(levels):
        if any(smaller.sites[kind] > larger.sites[kind] for kind in kinds):
            raise BudgetError(
                f"budget {smaller.name!r} ({smaller.sites}) is not below budget {larger.name!r} "
                f"({larger.sites}) in every kind, so one descent cannot meet both",
                "search them in two runs",
            )
    return levels


class SearchStage(Stage):
    """Weights and switches trained together, down through one or more budgets (the paper's Algorithm 1).

    A kind that has met the current budget is held: its switches stay where they are until every kind
    has met it. Then the cut is snapshotted and the descent goes on to the next budget. At the last one a
    held kind is binarized at once (early) or when all are held (late).
    """

    name = "search"

    def __init__(self, student: Student, config: SearchConfig, levels: list[Level], snapshot: Snapshot):
        super().__init__(student, config)
        self.settings, self.levels, self.snapshot = config, levels, snapshot
        self.switch_learning_rate = config.switch_learning_rate
        self.kinds = switched_kinds(config.kinds)
        self.level = 0
        self.held: list[str] = []
        self.sizes = {kind: sum(s.numel() for s in student.switches(kind)) for kind in self.kinds}
        self.penalties = {k: start_penalty(config.descent(k), self.sizes[k]) for k in self.kinds}
        self.history = {
            kind: [np.zeros(s.shape, np.float32) for s in student.switches(kind)] for kind in self.kinds
        }
        self.warnings: list[str] = []

    def values(self, kind: str) -> list[np.ndarray]:
        """The switches of a kind that is not frozen yet."""
        return [s.detach().float().cpu().numpy() for s in self.student.switches(kind)]

    def count(self, kind: str) -> int:
        """Active sites of one kind: switches above epsilon, or what a frozen kind keeps."""
        if self.student.frozen(kind):
            return sum(self.student.plan().kept(kind))
        return active(self.values(kind), self.settings.epsilon)

    def before_step(self) -> None:
        """Adds the gradient of the L1 term: switches are never below 0, so it is lambda for each."""
        for kind in self._moving():
            for layer, switch in enumerate(self.student.switches(kind)):
                assert switch.grad is not None
                switch.grad.add_(self._slope(kind, layer, switch))

    def after_step(self) -> None:
        """Keeps switches within [0, 1], and at 1 where nothing can stand in."""
        for kind in self._moving():
            for layer in self.student.sites_of(kind):
                layer.clamp_()

    def _slope(self, kind: str, layer: int, switch: Tensor) -> Tensor | float:
        """How steeply the penalty rises with each switch of a layer."""
        return self.penalties[kind].value

    def start(self, loop: Loop) -> None:
        """Freezes the kinds that are not searched, and meets budgets that need no training."""
        for kind in self.kinds:
            if kind not in self.settings.kinds:
                ones = [np.ones(s.shape, bool) for s in self.student.switches(kind)]
                self.student.freeze(kind, self.student.ids_where(kind, ones))
        self._settle(loop, {})

    def end_epoch(self, loop: Loop, record: dict[str, Any]) -> bool:
        """Counts, logs soft and cut accuracy, moves penalties, cuts what has met its budget."""
        record["validation_accuracy"] = loop.accuracy(self.student, loop.feed.validation)
        penalty = 0.0
        for kind in self.kinds:
            record[f"active_{kind}"] = self.count(kind)
            record[f"lambda_{kind}"] = self.penalties[kind].value
            if not self.student.frozen(kind):
                values = self.values(kind)
                penalty += self.penalties[kind].value * float(sum(v.sum() for v in values))
                record[f"mean_{kind}"] = float(sum(v.sum() for v in values)) / self.sizes[kind]
                for total, now in zip(self.history[kind], values, strict=True):
                    total += now
        record["penalty"] = penalty
        record["cut_accuracy"] = self._accuracy_of(loop, self.student.plan(self.settings.epsilon))
        record["budget_accuracy"] = self._accuracy_of(loop, self._cut(self.levels[-1]))
        self._press(record, may_grow=loop.epoch > self.settings.penalty_warmup_epochs)
        changed = self._settle(loop, record)
        if not self.done and loop.epoch >= self.config.epochs:
            self._force(loop, record)
            changed = True
        record["plan"] = self.student.plan(self.settings.epsilon).hash()
        return changed

    def _press(self, record: dict[str, Any], may_grow: bool) -> None:
        """Moves the penalties at the end of an epoch."""
        for kind in self._moving():
            self.penalties[kind] = next_penalty(
                self.penalties[kind],
                record[f"active_{kind}"],
                self.settings.descent(kind),
                self.sizes[kind],
                may_grow,
            )

    def _met(self, level: Level) -> list[str]:
        """The kinds that were on their way down and have come to a budget."""
        return [kind for kind in self._moving() if self.count(kind) <= level.sites[kind]]

    def _moving(self) -> list[str]:
        return [k for k in self.kinds if k not in self.held and not self.student.frozen(k)]

    def _settle(self, loop: Loop, record: dict[str, Any]) -> bool:
        """Holds, snapshots and freezes as the counts allow; true if what is trained has changed."""
        changed = False
        while not self.done:
            level, last = self.levels[self.level], self.level == len(self.levels) - 1
            met = self._met(level)
            self.held += met
            changed |= bool(met)
            if last and self.settings.binarize_when == "early":
                self._freeze(loop, met, record)
            self._hold()
            if self._moving():
                break
            changed = True
            self._finish_level(loop, record)
        return changed

    def _finish_level(self, loop: Loop, record: dict[str, Any]) -> None:
        level = self.levels[self.level]
        plan = self._last_cut(level)
        if self.level == len(self.levels) - 1:
            self._freeze(loop, [k for k in self.kinds if not self.student.frozen(k)], record, plan)
            plan, self.done = self.student.plan(), True
        accuracy = self._accuracy_of(loop, plan)
        cut = planned_student(self.student.spec, plan, self._weights())
        if loop.accelerator.is_main_process:
            self.snapshot(level.name, plan, cut.weights(), accuracy)
        if not self.done:
            self.level += 1
            self.held = []
            self._hold()

    def _hold(self) -> None:
        for kind in self.kinds:
            for switch in self.student.switches(kind):
                switch.requires_grad_(kind not in self.held)

    def _last_cut(self, level: Level) -> Plan:
        """The plan that a budget gets once it is met."""
        return self._cut(level)

    def _weights(self) -> dict[str, np.ndarray]:
        """The weights of a cut, with the parameters of every operator that one may have."""
        return self.student.weights()

    def _freeze(self, loop: Loop, kinds: list[str], record: dict[str, Any], plan: Plan | None = None) -> None:
        kinds = [kind for kind in kinds if not self.student.frozen(kind)]
        if not kinds:
            return
        plan, weights = plan or self._cut(self.levels[-1]), self._weights()
        for kind in kinds:
            self.student.freeze(kind, list(plan.layers[kind]))
        self.student.load_weights(weights)
        if "validation_accuracy" in record:
            soft, hard = record["validation_accuracy"], loop.accuracy(self.student, loop.feed.validation)
            record["cut_from"], record["cut_to"] = soft, hard
            if hard < soft * (1 - MAX_CUT_LOSS):
                self.warnings.append(
                    f"cutting {' and '.join(kinds)} in epoch {loop.epoch} took validation accuracy from "
                    f"{soft:.1%} to {hard:.1%}: the switches had not gone before they were cut. Give a "
                    "larger budget, more epochs, a larger penalty from the start, or a smaller growth"
                )

    def _force(self, loop: Loop, record: dict[str, Any]) -> None:
        self.warnings.append(
            f"after {loop.epoch} epochs {self._excess()}: "
            "they were cut by rank. Allow more epochs, or raise the penalty or its growth"
        )
        while not self.done:
            self.held = list(self.kinds)
            self._finish_level(loop, record)

    def _excess(self) -> str:
        """What is still above the last budget."""
        counts = ", ".join(f"{self.count(k)} {k}" for k in self._moving())
        wanted = ", ".join(f"{self.levels[-1].sites[k]} {k}" for k in self._moving())
        return f"{counts} sites were still active, above the budget of {wanted}"

    def _cut(self, level: Level) -> Plan:
        """The plan that cutting to a budget now would give."""
        current = self.student.plan(self.settings.epsilon)
        layers = {kind: list(ids) for kind, ids in current.layers.items()}
        for kind in self.kinds:
            if self.student.frozen(kind):
                continue
            values, budget = self.values(kind), level.sites[kind]
            by_rank = self.settings.binarize == "rank" or self.count(kind) > budget
            kept = (
                keep_ranked(values, budget, self.history[kind])
                if by_rank
                else keep_above(values, self.settings.epsilon)
            )
            layers[kind] = self.student.ids_where(kind, kept)
        return plan_from_ids(current.granularity, layers)

    def _accuracy_of(self, loop: Loop, plan: Plan) -> float:
        cut = planned_student(self.student.spec, plan, self._weights())
        return loop.accuracy(cut.to(loop.accelerator.device), loop.feed.validation)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Penalties, level and held kinds; histories and frozen ids."""
        frozen = [kind for kind in self.kinds if self.student.frozen(kind)]
        numbers = {
            "done": self.done,
            "level": self.level,
            "held": self.held,
            "penalties": penalty_to_json(self.penalties),
            "frozen": frozen,
            "warnings": self.warnings,
        }
        plan = self.student.plan(self.settings.epsilon)
        arrays = {f"history/{k}/{i}": a for k in self.kinds for i, a in enumerate(self.history[k])}
        arrays |= {f"ids/{k}/{i}": a for k in frozen for i, a in enumerate(plan.layers[k])}
        return numbers, arrays

    def load_state(self, numbers: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Sets back what `state` gave."""
        self.done, self.level, self.held = numbers["done"], numbers["level"], list(numbers["held"])
        self.penalties = penalty_from_json(numbers["penalties"])
        self.warnings = list(numbers["warnings"])
        layers = range(self.student.spec.depth)
        self.history = {kind: [arrays[f"history/{kind}/{i}"] for i in layers] for kind in self.kinds}
        for kind in numbers["frozen"]:
            self.student.freeze(kind, [arrays[f"ids/{kind}/{i}"] for i in layers])
        self._hold()
