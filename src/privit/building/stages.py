"""The stages between a model and its student, each a run folder: teacher, choice, fine-tuning.

A finished stage is read, an interrupted one goes on: whatever killed a build, the same command ends with the
same student.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privit.artifact import Artifact
from privit.building.foresee import (
    Foreseen,
    cheapest,
    cost_of,
    guard_cost,
    prices,
    refuse_impossible,
    search_settings,
)
from privit.building.request import Request
from privit.building.rungs import best_try, next_try, rung_costs
from privit.config import free_choices
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.errors import BudgetError, TrainingDiverged
from privit.operators import FITTED
from privit.plan import uniform_plan
from privit.presets import BEST, MOST_REUSED
from privit.runs import load_run

Tell = Callable[[str], None]
MARGIN = 1.01
"""How much less than needed the second try aims at."""
WORST = 100.0
"""Points below the teacher that a fine-tuning which diverged counts as."""


@dataclass(frozen=True)
class Student:
    """The run of the chosen student, and for an accuracy what every try of a plan ended with."""

    run: Path
    tries: tuple[dict[str, Any], ...] = ()


def make_teacher(request: Request, foreseen: Foreseen) -> Path:
    """The folder of the teacher's run."""
    from privit.train.teacher import train_teacher

    if request.teacher is not None:
        return request.teacher
    train_teacher(request.model, request.data, request.out / "teacher", foreseen.teacher)
    return request.out / "teacher"


def teacher_ranges(teacher: Path, seed: int) -> dict[str, float]:
    """The ranges of the untouched teacher's values, on the images that stand-ins are fitted on."""
    from privit.train.descent.cost_ground import teacher_ranges as measure
    from privit.train.stages import read_model

    model = read_model(load_run(teacher, "teacher"))
    return measure(model, model.subject.load(), seed)


def make_student(
    request: Request,
    foreseen: Foreseen,
    teacher: Path,
    ranges: dict[str, float],
    tell: Tell,
    over: float | None = None,
) -> Student:
    """The student that the budgets ask for.

    `over` is by how many times the student that was made for them turned out to cost more, when fine-tuning
    and export had moved the ranges of its values: another one is made for as much less.
    """
    refuse_impossible(request, foreseen.spec, ranges)
    aimed = _without_guard(request, foreseen, ranges)
    if request.max_loss is not None and request.price is not None:
        limits = _limits(aimed, foreseen, request.price, ranges)
        return _within_loss(aimed, foreseen, teacher, limits, tell)
    if over is None:
        return _under_budget(aimed, foreseen, teacher, "", tell)
    less = replace(aimed, most={unit: most / over / MARGIN for unit, most in aimed.most.items()})
    return _under_budget(less, foreseen, teacher, "-2", tell)


def overspent(request: Request, artifact: Artifact) -> float:
    """The largest share of an amount that an artifact's program is predicted to take; above 1 is too much."""
    public = artifact.public
    shares = [
        cost_of(artifact.plan, artifact.spec, price, public.ranges, public.guard) / request.most[price.unit]
        for price in prices(request)
        if price.unit in request.most
    ]
    return max(shares, default=0.0)


def _under_budget(request: Request, foreseen: Foreseen, teacher: Path, again: str, tell: Tell) -> Student:
    from privit.train.finetune import finetune
    from privit.train.search import search

    chosen, tuned = request.out / f"choice{again}", request.out / f"finetune{again}"
    if request.preset == BEST:
        _choose(request, teacher, chosen, (None,), tell)
    else:
        search(teacher, chosen, search_settings(request))
    tell("fine-tuning")
    finetune(chosen, tuned, foreseen.finetune)
    return Student(tuned)


def _without_guard(request: Request, foreseen: Foreseen, ranges: dict[str, float]) -> Request:
    """The request with what is left for the plan: the guard comes on top of it."""
    plans = (uniform_plan(foreseen.spec), cheapest(foreseen.spec, request))
    guards: dict[str, float] = {
        price.unit: max(guard_cost(plan, foreseen.spec, price, ranges) for plan in plans)
        for price in prices(request)
    }
    return replace(request, most={unit: most - guards[unit] for unit, most in request.most.items()})


def _limits(
    request: Request, foreseen: Foreseen, price: Price, ranges: dict[str, float]
) -> tuple[float, float]:
    """The cheapest plan's cost in this teacher, and that of the untouched one or what may be spent."""
    pricer = Pricer(foreseen.spec, price, ranges)
    exact = pricer.cost(uniform_plan(foreseen.spec))
    floor = pricer.cost(cheapest(foreseen.spec, request))
    return floor, min(exact, request.most.get(price.unit, exact))


def _choose(
    request: Request, teacher: Path, chosen: Path, costs: tuple[float | None, ...], tell: Tell
) -> dict[str, Any]:
    """Plans chosen by measured loss and fitted to the teacher, one for each cost."""
    from privit.train.fitting.fit import FitConfig
    from privit.train.training_free import TrainingFreeConfig, search_without_training

    config = TrainingFreeConfig(
        tuple(request.budget(cost) for cost in costs),
        free=free_choices(FITTED) if request.price else {},
        price=request.price,
        most_reused=MOST_REUSED,
        candidates=len(costs) > 1,
        fit=FitConfig(seed=request.seed),
    )
    return search_without_training(teacher, chosen, config, tell)


def _within_loss(
    request: Request, foreseen: Foreseen, teacher: Path, limits: tuple[float, float], tell: Tell
) -> Student:
    """The cheapest plan on the ladder whose fine-tuned student loses no more than it may."""
    from privit.train.finetune import finetune

    allowed, price = float(request.max_loss or 0), request.price
    assert price is not None
    best = _validation(load_run(teacher, "teacher").result())
    chosen, costs = request.out / "choice", tuple(reversed(rung_costs(*limits)))
    found = _choose(request, teacher, chosen, costs, tell)["budgets"]
    plans = _cheapest_first(found)
    below = [100 * (best - _validation(found[name])) for name in plans]
    tried: dict[int, float] = {}
    while (place := next_try(below, tried, allowed)) is not None:
        name = plans[place]
        cost = price.show(found[name]["predicted_cost"])
        tell(f"fine-tuning try {len(tried) + 1}: the plan for {cost}, fitted {below[place]:.1f} points below")
        try:
            result = finetune(chosen, _try(request, name), foreseen.finetune, name)
            tried[place] = 100 * (best - _validation(result))
        except TrainingDiverged as error:
            tell(error.message)
            tried[place] = WORST
        tell(f"the student for {cost} is {_points(tried[place])}")
    tries = tuple(
        {
            "budget": plans[place],
            "predicted_seconds": found[plans[place]]["predicted_cost"],
            "points_below_fitted": below[place],
            "points_below": points,
        }
        for place, points in tried.items()
    )
    place = best_try(tried, allowed)
    if place is None:
        nearest = min(tried, key=lambda place: tried[place])
        cost = price.show(found[plans[nearest]]["predicted_cost"])
        raise BudgetError(
            f"no plan within the budgets ends at most {allowed:g} points below its teacher: the nearest is "
            f"{_points(tried[nearest])}, at {cost} under {price.setting}",
            f"give --max-loss {max(tried[nearest], 0):.2f} or a larger budget; what was trained is kept in "
            f"{request.out}, and the same command with another --max-loss goes on from there",
        )
    return Student(_try(request, plans[place]), tries)


def _try(request: Request, name: str) -> Path:
    return request.out / "tries" / name


def _cheapest_first(found: dict[str, Any]) -> list[str]:
    """The budgets by predicted cost; of those that share a plan one is enough."""
    ordered = sorted(found, key=lambda name: (found[name]["predicted_cost"], found[name]["budget_cost"]))
    return list({found[name]["plan"]: name for name in reversed(ordered)}.values())[::-1]


def _validation(result: dict[str, Any] | None) -> float:
    return float((result or {})["validation_accuracy"])


def _points(below: float) -> str:
    return f"{abs(below):.2f} points {'below' if below > 0 else 'above'} its teacher on validation images"
