"""What a build will do: its settings, how long they take here, and what budgets are possible at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from privit.building.request import Request
from privit.building.settings import teacher_for
from privit.config import FinetuneConfig, SearchConfig, TeacherConfig, free_choices, from_json
from privit.cost.budgets.floors import least_cost_of
from privit.cost.budgets.ladder import below_floor, cheapest_plan
from privit.cost.budgets.price import Price, Unit
from privit.cost.budgets.pricing import Pricer
from privit.cost.estimate import estimate
from privit.data.datasets import Data, default_preprocessing, load_data
from privit.errors import RequestError
from privit.operators import FITTED, UNTOUCHED
from privit.plan import Plan, uniform_plan
from privit.presets import BEST, MOST_REUSED, best_finetune, preset
from privit.runs import Run, load_run
from privit.spec import KINDS, Granularity, Spec

CHEAPEST = FITTED | free_choices(FITTED)
TRIES = "1 to 4"
"""Fine-tunings that an accuracy takes."""


@dataclass(frozen=True)
class Foreseen:
    """The stages' settings, the data, the model's shape, and seconds of one image in a step of either."""

    data: Data
    spec: Spec
    teacher: TeacherConfig
    finetune: FinetuneConfig
    teacher_seconds: float
    student_seconds: float
    trains_teacher: bool

    def sentences(self, request: Request) -> list[str]:
        """What will be done, how long that takes here, and between what the budget lies."""
        images = len(self.data.train)
        seen = images * self.student_seconds
        first = (
            f"teacher: {self.teacher.epochs} epochs of {images} images, about "
            f"{_time(self.teacher.epochs * images * self.teacher_seconds)} here"
            if self.trains_teacher
            else f"teacher: {request.teacher} as it is"
        )
        times = TRIES if request.max_loss is not None else "1"
        each = _time(self.finetune.epochs * seen)
        said = [
            first,
            "choice and fit: minutes without training"
            if request.preset == BEST
            else f"search: at most {preset(request.preset).search.epochs} epochs, about "
            f"{_time(preset(request.preset).search.epochs * seen)} here",
            f"fine-tuning: {times} of {self.finetune.epochs} epochs, about {each} each",
            "export" + (" and check under MPC: minutes" if request.check else ""),
        ]
        return [*said, *self._limits(request)]

    def _limits(self, request: Request) -> list[str]:
        """Floor and ceiling of every unit, as far as they are known without the teacher's ranges."""
        said = []
        for price in prices(request):
            floor = price.show(least_cost_of(cheapest(self.spec, request), self.spec, price))
            ceiling = price.show(Pricer(self.spec, price).cost(uniform_plan(self.spec)))
            said.append(
                f"{price.unit}: nothing below {floor} is possible, nothing above {ceiling} is needed "
                f"({price.setting}; what the teacher's values allow is known when it is there)"
            )
        return said


def foresee(request: Request) -> Foreseen:
    """Settings and a measurement; refuses data, models and budgets that cannot be, before anything long."""
    from privit.train.stages import Subject, read_model
    from privit.train.teacher import starting_point
    from privit.train.timing import seconds_per_image

    if request.teacher is not None:
        run = load_run(request.teacher, "teacher")
        _refuse_other_teacher(request, run)
        model = read_model(run)
        subject, weights, data = model.subject, model.weights, model.subject.load()
        config = from_json(TeacherConfig, run.description["config"])
    else:
        data = load_data(request.data, train_limit=request.train_limit)
        _refuse_one_class(data)
        config = _teacher(request, data)
        spec, weights, preprocessing = starting_point(request.model, len(data.class_names), config)
        subject = Subject(spec, preprocessing or default_preprocessing(data, spec), data.class_names, {})
    _refuse_one_class(data)
    refuse_impossible(request, subject.spec)
    finetune = _finetune(request, len(data.train), config.learning_rate)
    measured = partial(seconds_per_image, subject, weights, data.train, finetune)
    first, then = measured(), measured(cheapest(subject.spec, request))
    return Foreseen(data, subject.spec, config, finetune, first, then, request.teacher is None)


def prices(request: Request) -> list[Price]:
    """The units that a request speaks of."""
    units = dict.fromkeys([*([request.price.unit] if request.price else []), *request.most])
    return [Price(cast(Unit, unit), request.protocol, request.network) for unit in units]


def cheapest(spec: Spec, request: Request) -> Plan:
    """The plan below which nothing is possible."""
    if request.preset == BEST:
        options = {kind: (CHEAPEST[kind], UNTOUCHED[kind]) for kind in KINDS}
        return cheapest_plan(spec, Granularity(), options, MOST_REUSED)
    search = preset(request.preset).search
    names = {k: search.stand_in[k] if k in search.kinds else search.exact[k] for k in KINDS}
    return uniform_plan(spec, granularity=search.granularity, **names)


def refuse_impossible(request: Request, spec: Spec, ranges: dict[str, float] | None = None) -> None:
    """Refuses amounts below the cheapest plan: in the best case, or in a model with these ranges."""
    plan = cheapest(spec, request)
    for price in prices(request):
        if price.unit not in request.most:
            continue
        if ranges is None:
            least = least_cost_of(plan, spec, price)
        else:
            least = Pricer(spec, price, ranges).cost(plan) + guard_cost(plan, spec, price, ranges)
        if request.most[price.unit] < least:
            raise below_floor(price, request.most[price.unit], least)


def guard_cost(plan: Plan, spec: Spec, price: Price, ranges: Mapping[str, float]) -> float:
    """What the exported program's guard adds to a plan's cost, which plans are priced without."""
    with_guard, without = (cost_of(plan, spec, price, ranges, guard) for guard in (True, False))
    return max(with_guard - without, 0.0)


def cost_of(plan: Plan, spec: Spec, price: Price, ranges: Mapping[str, float], guard: bool) -> float:
    """What `privit cost` predicts for a program in one unit."""
    where = {"protocol": price.protocol, "network": price.network}
    found = estimate(spec, plan, "spu", **where, ranges=ranges, guard=guard)
    return float(found["sent_bytes" if price.unit == "bytes" else price.unit])


def search_settings(request: Request) -> SearchConfig:
    """The trained search of a preset that has one, under the request's budget."""
    search, budget = preset(request.preset).search, request.budget()
    free = search.free or (free_choices(search.stand_in) if request.price else {})
    sites = {kind: share for kind, share in budget.sites.items() if kind in search.kinds}
    budgets = (replace(budget, sites=sites),)
    return replace(search, budgets=budgets, price=request.price, free=free, seed=request.seed)


def _teacher(request: Request, data: Data) -> TeacherConfig:
    best = request.preset == BEST
    config = teacher_for(request.model, data) if best else preset(request.preset).teacher
    return replace(
        config,
        epochs=request.teacher_epochs or config.epochs,
        seed=request.seed,
        image_size=request.image_size,
        train_limit=request.train_limit,
    )


def _finetune(request: Request, images: int, teacher_rate: float) -> FinetuneConfig:
    best = request.preset == BEST
    config = best_finetune(images, teacher_rate) if best else preset(request.preset).finetune
    return replace(config, epochs=request.epochs or config.epochs, seed=request.seed)


def _refuse_other_teacher(request: Request, run: Run) -> None:
    for name, asked in (("model", request.model), ("data", request.data)):
        if (found := run.description["inputs"][name]) != asked:
            raise RequestError(
                f"{request.teacher} is a teacher of {name} {found}, but {asked} was asked for",
                "give the model and data of that run, or leave --teacher away",
            )


def _refuse_one_class(data: Data) -> None:
    if len(set(data.train.labels.tolist())) < 2:
        only = data.class_names[int(data.train.labels[0])] if len(data.train) else "none"
        raise RequestError(
            f"the training images of {data.name} are all of one class ({only}): nothing to tell apart",
            "give data with at least two classes",
        )


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
