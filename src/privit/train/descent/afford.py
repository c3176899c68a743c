"""Plans that a cost budget can pay, from the loss that each operator causes at each site.

Losses are measured on training images (choose.py) in the model as it is; costs are estimated for the ranges
that the model's values have, since those decide how long the engine's functions are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from privit.config import SearchConfig
from privit.cost.budgets.budget import Budget
from privit.cost.budgets.ladder import Ladder, Losses, below_floor, cheapest_plan, make_ladder
from privit.cost.budgets.price import ENGINE_UNITS, Price, Unit
from privit.cost.budgets.pricing import JointPricer, Pricer
from privit.cost.budgets.rungs import WITHIN
from privit.errors import BudgetError
from privit.operators import UNTOUCHED
from privit.plan import Plan, site_budget
from privit.spec import KINDS, PAPER_KINDS, Granularity, Spec
from privit.train.descent.caps import NO_CAPS, Caps, handed_out
from privit.train.fitting.choose import Scores, site_scores
from privit.train.fitting.fit import FitConfig, fit
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.stages import Model
from privit.train.student.vit import Student

FITS = 3
"""How often a plan is made anew because the model fitted to it has other ranges than were priced."""


def choices(
    exact: Mapping[str, str], stand_in: Mapping[str, str], free: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """For each kind what may stand at a site: a free operator if there is one, the stand-in, the exact.

    A kind without a stand-in stays exact.
    """
    exact = UNTOUCHED | dict(exact)
    stand_in = exact | dict(stand_in)
    return {
        kind: tuple(dict.fromkeys([*([free[kind]] if kind in free else []), stand_in[kind], exact[kind]]))
        for kind in KINDS
    }


def choices_of(config: SearchConfig) -> dict[str, tuple[str, ...]]:
    """The choices of a search; a kind that is not switched has only its exact operator."""
    found = choices(config.exact, config.stand_in, config.free)
    return {kind: found[kind] if kind in config.kinds else (config.exact[kind],) for kind in KINDS}


def measured_losses(
    model: Model,
    options: Mapping[str, tuple[str, ...]],
    granularity: Granularity,
    pixels: np.ndarray,
    config: FitConfig,
    score_images: int,
) -> tuple[Losses, dict[str, np.ndarray]]:
    """The loss of every choice at every site, and the parameters that it has with.

    Stand-ins are fitted in the untouched model and tried out there.
    """
    scores: dict[str, Scores] = {}
    parameters: dict[str, np.ndarray] = {}
    exact = {kind: options[kind][-1] for kind in KINDS}
    most = max(len(found) - 1 for found in options.values())
    for level in range(most):
        # A kind with fewer choices is looked at again under its last stand-in.
        names = {k: options[k][min(level, max(len(options[k]) - 2, 0))] for k in KINDS}
        kinds = tuple(kind for kind in KINDS if kind in PAPER_KINDS or len(options[kind]) > 1)
        student = Student(model.subject.spec, granularity, exact, names, kinds=kinds)
        student.load_weights(model.weights)
        fitted = fit(student, pixels, config)
        found = site_scores(fitted, pixels[:score_images], config.batch_size, config.seed)
        scores |= {names[kind]: found for kind in KINDS}
        parameters |= {n: value for n, value in fitted.weights().items() if n not in model.weights}
    return losses_of(options, scores), parameters


def losses_of(options: Mapping[str, tuple[str, ...]], scores: Mapping[str, Scores]) -> Losses:
    """Losses by level from scores by operator name; the exact operators lose nothing."""
    shapes = next(iter(scores.values()))
    return {
        kind: [
            np.stack([scores[name][kind][i] for name in options[kind][:-1]] + [np.zeros_like(layer)])
            for i, layer in enumerate(shapes[kind])
        ]
        for kind in KINDS
    }


def weighed(losses: Losses, weigh: Mapping[str, float]) -> Losses:
    """Losses by kind, each as many times as it is to count."""
    return {kind: [weigh.get(kind, 1.0) * layer for layer in layers] for kind, layers in losses.items()}


@dataclass
class Affordable:
    """Plans by budget for one model: options, losses and price are given, ranges may change.

    At most `most_reused` LayerNorms in a row reuse another's factor, where that is given. Without being
    `thorough` plans are made in a moment, and may stay farther below their budgets.
    """

    spec: Spec
    granularity: Granularity
    price: Price
    options: Mapping[str, tuple[str, ...]]
    losses: Losses
    ranges: dict[str, float]
    most_reused: int | None = None
    thorough: bool = True
    _ladder: Ladder | None = None
    _pricer: Pricer | None = None

    @property
    def pricer(self) -> Pricer:
        """What plans cost with the ranges as they are now."""
        if self._pricer is None:
            self._pricer = Pricer(self.spec, self.price, self.ranges)
        return self._pricer

    @property
    def ladder(self) -> Ladder:
        """The plans of all budgets."""
        if self._ladder is None:
            self._ladder = self._ladder_of(self.pricer)
        return self._ladder

    def plan(self, budget: float, most_kept: int | None = None, caps: Caps = NO_CAPS) -> Plan:
        """The plan that a budget pays for; one below the floor is refused."""

        def found(ladder: Ladder) -> Plan:
            return ladder.plan(ladder.index_for(budget, most_kept, lambda plan: not self.breaks(plan, caps)))

        if caps == NO_CAPS:
            return found(self.ladder)
        joint = self._joint(budget, caps)
        if not caps.sites:
            return found(self._ladder_of(joint))
        return handed_out(caps, self.losses, lambda may: found(self._ladder_of(joint, may)))

    def _ladder_of(self, pricer: Pricer, may: Losses | None = None) -> Ladder:
        fixed = (pricer, self.granularity, self.options, self.losses, self.thorough)
        return make_ladder(*fixed, may, self.most_reused)

    def _joint(self, budget: float, caps: Caps) -> Pricer:
        """What plans cost with a budget and caps that the engine counts together."""
        counted = {cast(Unit, unit): most for unit, most in caps.amounts.items() if unit in ENGINE_UNITS}
        if not counted or not self.pricer.on_engine:
            return self.pricer
        return JointPricer(self.spec, self.price, self.ranges, most={self.price.unit: budget, **counted})

    def breaks(self, plan: Plan, caps: Caps, ranges: Mapping[str, float] | None = None) -> bool:
        """Whether a plan breaks one of the caps, in a model with these ranges if any are given."""
        return caps.broken(plan, self.price, self.spec, self.ranges | dict(ranges or {}))

    def use_ranges(self, ranges: Mapping[str, float]) -> None:
        """Prices with other ranges from now on; what they do not name stays."""
        self.ranges = self.ranges | dict(ranges)
        self._ladder = self._pricer = None

    def cost(self, plan: Plan, ranges: Mapping[str, float] | None = None) -> float:
        """What a plan costs, in a model with these ranges if any are given."""
        if ranges is None:
            return self.pricer.cost(plan)
        return Pricer(self.spec, self.price, self.ranges | dict(ranges)).cost(plan)


def refuse_below_floor(
    spec: Spec,
    price: Price,
    options: Mapping[str, tuple[str, ...]],
    granularity: Granularity,
    budgets: tuple[Budget, ...],
    ranges: Mapping[str, float],
    most_reused: int | None = None,
) -> None:
    """Refuses budgets whose cost or cap the cheapest plan breaks, before anything is measured or trained."""
    cheapest = cheapest_plan(spec, granularity, options, most_reused)
    for budget in sorted(budgets, key=lambda budget: float(budget.cost or 0)):
        for unit, most in {price.unit: float(budget.cost or 0), **budget.caps}.items():
            asked = replace(price, unit=cast(Unit, unit))
            floor = Pricer(spec, asked, ranges).cost(cheapest)
            if most < floor:
                raise below_floor(asked, most, floor)
        for kind, value in budget.sites.items():
            most_sites, least = site_budget(value, cheapest.total(kind), kind), sum(cheapest.kept(kind))
            if most_sites < least:
                raise BudgetError(
                    f"at most {most_sites} {kind} sites may be exact, but {least} cannot be replaced",
                    f"the first LayerNorm has nothing to reuse, and few in a row may: keep {least}, or give "
                    "another stand-in",
                )


def describe_cost(price: Price, cost: float, budget: float) -> dict[str, Any]:
    """A predicted cost beside its budget."""
    return {"budget_cost": budget, "predicted_cost": cost, "price": vars(price).copy()}


@dataclass(frozen=True)
class Settled:
    """A student with a plan within its budget, and what that costs with the student's own ranges."""

    student: Student
    predicted_cost: float


def settle(
    found: Affordable,
    budget: float,
    student_for: Callable[[Plan], Student],
    pixels: np.ndarray,
    most_kept: int | None = None,
    caps: Caps = NO_CAPS,
) -> Settled:
    """The plan for a budget and its student; made again where the student's ranges change what it costs."""
    target, best = budget, None
    for _ in range(FITS):
        student = student_for(found.plan(target, most_kept, caps))
        own = measure_ranges(student, pixels)
        cost = found.cost(student.plan(), own)
        paid = cost <= budget and not found.breaks(student.plan(), caps, own)
        if paid and (best is None or cost > best.predicted_cost):
            best = Settled(student, cost)
        if paid and ((1 - WITHIN) * budget <= cost or not found.thorough):
            break
        if paid and found.cost(student.plan()) == cost:
            break  # The ranges change nothing: there is no plan nearer to the budget.
        found.use_ranges(own)
        target = min(target, budget) if cost <= budget else target * budget / cost
    if best is None and caps != NO_CAPS:
        raise BudgetError(
            f"no plan was found within {found.price.show(budget)} and its caps: fitted to a plan, the model "
            "has other ranges, and costs more than was priced",
            "give a few per cent more of each",
        )
    if best is None:
        raise found.ladder.refusal(budget)
    return best
