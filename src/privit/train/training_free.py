"""Runs that train nothing: fitted stand-ins, plans chosen by measured loss, and starts for trained stages.

`fit_run` and `search_without_training` write a run like a trained search's: `finetune` and `export` take it
as it is. `fitted_start` gives the parameters with which a trained search begins.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from privit.config import SearchConfig, weigh_problems
from privit.cost.budgets.budget import Budget, budgets_problems
from privit.cost.budgets.price import Price
from privit.data.datasets import Data, preprocess_split
from privit.earlier import as_before_norms, with_norms
from privit.errors import BudgetError, config_error
from privit.operators import FITTED, UNTOUCHED, operator
from privit.plan import Plan, per_layer
from privit.presets import MOST_REUSED
from privit.runs import Run, load_run, open_run, read_json, write_text
from privit.spec import KINDS, PAPER_KINDS, Granularity, Spec, switched_kinds
from privit.train.descent.afford import (
    Affordable,
    choices,
    describe_cost,
    measured_losses,
    refuse_below_floor,
    settle,
    weighed,
)
from privit.train.descent.caps import caps_of
from privit.train.descent.cost_ground import known_measures
from privit.train.descent.pools import choose_tokens, smallest_floor
from privit.train.fitting.choose import choose_plans, site_scores
from privit.train.fitting.counted import Layers, counted_layers, counts_problems, with_layers
from privit.train.fitting.fit import FitConfig, fit, fit_images
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.loop.batches import Images, count_correct
from privit.train.search import cut_folder
from privit.train.stages import (
    Model,
    describe_plan,
    model_hash,
    planned_student,
    read_model,
    threads,
    write_cut,
    write_model,
)
from privit.train.student.vit import Student

NOTHING = Budget(dict.fromkeys(PAPER_KINDS, 0))
"""The polynomial ViT: no exact GELU and no exact softmax at all, every LayerNorm exact."""


@dataclass(frozen=True)
class TrainingFreeConfig:
    """What a run without training may keep, what stands elsewhere, and how that is fitted.

    `score_images` of the fit's images are used to measure what each site's replacement costs. Budgets in
    cost need a `price`, have a third choice for each kind that `free` names, and count a kind's losses as
    often as `weigh` says. `tokens` are those of each block; with `choose_tokens` the one budget in cost
    decides where patches are pooled, and to how many. Under a price, at most `most_reused` LayerNorms in a
    row reuse another's factor. Budgets that are only `candidates` of a later choice are met more quickly
    and less nearly, left out where no fitted plan meets them, and see no test image. Where budgets leave
    nothing, `kept` counts by kind the sites that each layer keeps exact (one count alone: every layer);
    they lie where `plan_from_counts` puts them by the fit's seed.
    """

    budgets: tuple[Budget, ...] = (NOTHING,)
    granularity: Granularity = field(default_factory=Granularity)
    exact: dict[str, str] = field(default_factory=lambda: dict(UNTOUCHED))
    stand_in: dict[str, str] = field(default_factory=lambda: dict(FITTED))
    free: dict[str, str] = field(default_factory=dict)
    weigh: dict[str, float] = field(default_factory=dict)
    price: Price | None = None
    tokens: tuple[int, ...] = ()
    choose_tokens: bool = False
    most_reused: int | None = None
    candidates: bool = False
    kept: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fit: FitConfig = field(default_factory=FitConfig)
    score_images: int = 128
    memory_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        for name in ("exact", "stand_in"):
            object.__setattr__(self, name, with_norms(name, getattr(self, name)))

    def problems(self) -> list[str]:
        """Everything that is wrong with these settings, in sentences."""
        found = self.fit.problems() + budgets_problems(self.budgets, self.price) + weigh_problems(self.weigh)
        if not self.score_images > 0:
            found.append(f"score_images is {self.score_images}, not above zero")
        if self.choose_tokens and (self.price is None or len(self.budgets) != 1):
            found.append("tokens are chosen by one budget in cost; give one, or the tokens themselves")
        if self.choose_tokens and self.tokens:
            found.append("tokens are given, and also to be chosen; give one or the other")
        if self.kept and self.has_budgets():
            found.append("what stays is counted per layer, but budgets are given; give one or the other")
        return found + counts_problems(self.kept, self.granularity)

    def has_budgets(self) -> bool:
        """Whether any budget leaves something to choose."""
        return any(budget.cost is not None or any(budget.sites.values()) for budget in self.budgets)

    @classmethod
    def of(cls, search: SearchConfig) -> TrainingFreeConfig:
        """A trained search's settings, as far as they matter without training.

        A kind that is not switched keeps every site: a budget in sites says so, and one in cost has nothing
        to choose there. Under a price, LayerNorms that reuse another's factor stand in short rows: students
        with long ones diverge in training.
        """
        kinds = switched_kinds(search.kinds)
        held = [kind for kind in kinds if kind not in search.kinds]
        budgets, stand_in, free = search.budgets, search.stand_in, search.free
        if search.price is None:
            whole = dict.fromkeys(held, 1.0)
            budgets = tuple(
                replace(b, sites={k: v for k, v in b.sites.items() if k in kinds} | whole) for b in budgets
            )
        else:
            stand_in = stand_in | {kind: search.exact[kind] for kind in KINDS if kind not in search.kinds}
            free = {kind: name for kind, name in free.items() if kind in search.kinds}
        fit = FitConfig(seed=search.seed)
        granularity, exact, tokens = search.granularity, search.exact, search.tokens
        most_reused = MOST_REUSED if search.price is not None and "norm" in search.kinds else None
        return cls(
            budgets,
            granularity,
            exact,
            stand_in,
            free,
            dict(search.weigh),
            search.price,
            tokens,
            most_reused=most_reused,
            fit=fit,
        )


def fit_run(teacher_run: Path, run: Path, config: TrainingFreeConfig | None = None) -> dict[str, Any]:
    """The result of replacing every site that is not in `kept` by a fitted stand-in, before any training.

    Where nothing is kept this is the polynomial ViT.
    """
    config = config or TrainingFreeConfig()
    if config.has_budgets():
        raise config_error(["a fit keeps nothing, but budgets are given; search without training takes them"])
    return search_without_training(teacher_run, run, config)


def search_without_training(
    teacher_run: Path,
    run: Path,
    config: TrainingFreeConfig | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The result of choosing and fitting a plan for each budget; a finished run is returned as it is.

    `tell` is called with what is being done.
    """
    config = _whole(config or TrainingFreeConfig())
    _check(config)
    source = load_run(teacher_run, "teacher")
    teacher = read_model(source)
    start = teacher.with_tokens(config.tokens)
    config, counted = _counted(config, start.subject.spec)
    notes = {"teacher": os.path.relpath(source.folder, run), "data": teacher.subject.data["name"]}
    settings = {"training": False} | _settings(config)
    if config.price is not None and not (Path(run) / "config.json").is_file():
        # Said before there is a folder, so that the next try can have the same name.
        _refuse_impossible(start, config, config.price)
    inputs, defaults = {"teacher": model_hash(teacher)}, _settings(TrainingFreeConfig())
    opened = open_run(run, "search", settings, inputs, threads(), notes, defaults)
    if (finished := opened.result()) is not None:
        return finished
    started = time.monotonic()
    data = teacher.subject.load()
    pixels = _fit_pixels(teacher, data, config.fit)
    tried: list[dict[str, Any]] = []
    if config.choose_tokens and config.price is not None:
        start, tried = _chosen_tokens(opened, teacher, pixels, config, config.price)
    if config.price is None:
        plans = {name: with_layers(plan, counted) for name, plan in _plans(start, pixels, config).items()}
        cuts = {name: _fitted(start, teacher, plan, pixels, config.fit) for name, plan in plans.items()}
        costs: dict[str, dict[str, Any]] = {}
    else:
        cuts, costs = _paid(opened, start, teacher, pixels, config, config.price, tell or (lambda _: None))
    seconds = time.monotonic() - started
    budgets = {
        name: _record(opened, teacher, data, name, cut, config) | costs.get(name, {})
        for name, cut in cuts.items()
    }
    last = [budget.name for budget in config.budgets if budget.name in cuts][-1]
    write_model(opened.folder, start.subject, cuts[last].plan(), cuts[last].weights())
    result = {"stage": "search"} | budgets[last] | {"budgets": budgets, "warnings": [], "epochs": 0}
    spec = start.subject.spec
    result["tokens"] = [spec.tokens_in(layer) for layer in range(spec.depth)]
    return opened.finish(result | ({"tokens_tried": tried} if tried else {}) | {"seconds": round(seconds, 3)})


def fitted_start(
    teacher_run: Path,
    granularity: Granularity | None = None,
    stand_in: dict[str, str] | None = None,
    config: FitConfig | None = None,
    kinds: Iterable[str] = PAPER_KINDS,
    tokens: Sequence[int] = (),
) -> dict[str, np.ndarray]:
    """Parameters of stand-ins fitted in the untouched teacher: `initial_weights` of a trained search.

    While switches are near 1 the teacher's own values arrive at every site, so that is where the fit is made.
    """
    config = config or FitConfig()
    teacher = read_model(load_run(teacher_run, "teacher"))
    defaults = TrainingFreeConfig()
    granularity, stand_in = granularity or defaults.granularity, stand_in or defaults.stand_in
    student = _switched(teacher.with_tokens(tokens), granularity, defaults.exact, stand_in, kinds)
    fitted = fit(student, _fit_pixels(teacher, teacher.subject.load(), config), config)
    return {name: value for name, value in fitted.weights().items() if name not in teacher.weights}


def _settings(config: TrainingFreeConfig) -> dict[str, Any]:
    """Plain data; what was known before LayerNorms had sites is written as it was then."""
    found = json.loads(json.dumps(asdict(config)))
    found["budgets"] = [budget.to_json() for budget in config.budgets]
    # Under a price, what may stand at LayerNorms is all that says whether they are replaced.
    return as_before_norms(found, None if config.price is None else config.exact["norm"])


def _whole(config: TrainingFreeConfig) -> TrainingFreeConfig:
    """The settings with an operator for every kind; under a budget in cost, one without a stand-in stays."""
    exact = UNTOUCHED | config.exact
    others = FITTED if config.price is None else exact
    return replace(config, exact=exact, stand_in=others | config.stand_in)


def _check(config: TrainingFreeConfig) -> None:
    problems = config.problems()
    if problems:
        raise config_error(problems)
    for role in (config.exact, config.stand_in, config.free):
        for kind in KINDS:
            if role is not config.free or kind in role:
                operator(role[kind], kind)


def _counted(config: TrainingFreeConfig, spec: Spec) -> tuple[TrainingFreeConfig, Layers]:
    """The settings with a count for every layer, and what these keep."""
    kept = {kind: tuple(per_layer(counts, spec.depth)) for kind, counts in config.kept.items()}
    found = counted_layers(spec, kept, config.fit.seed, config.exact, config.stand_in)
    return replace(config, kept=kept), found


def _fit_pixels(teacher: Model, data: Data, config: FitConfig) -> np.ndarray:
    """The training images a fit looks at, as model inputs."""
    return preprocess_split(data.train, teacher.subject.preprocessing, fit_images(len(data.train), config))


def _switched(
    teacher: Model,
    granularity: Granularity,
    exact: dict[str, str],
    stand_in: dict[str, str],
    kinds: Iterable[str],
) -> Student:
    student = Student(teacher.subject.spec, granularity, exact, stand_in, kinds)
    student.load_weights(teacher.weights)
    return student


def _plans(teacher: Model, pixels: np.ndarray, config: TrainingFreeConfig) -> dict[str, Plan]:
    """One plan per budget; without anything to keep there is nothing to measure."""
    budgets = {budget.name: budget.sites for budget in config.budgets}
    kinds = {kind for sites in budgets.values() for kind in sites}
    student = _switched(teacher, config.granularity, config.exact, config.stand_in, kinds)
    scores = {kind: [np.zeros(sites.shape) for sites in student.sites_of(kind)] for kind in KINDS}
    if any(value for sites in budgets.values() for value in sites.values()):
        fitted = fit(student, pixels, config.fit)
        scores = site_scores(fitted, pixels[: config.score_images], config.fit.batch_size, config.fit.seed)
    return choose_plans(student, scores, budgets)


def _refuse_impossible(teacher: Model, config: TrainingFreeConfig, price: Price) -> None:
    ranges = measure_ranges(teacher.student(), _fit_pixels(teacher, teacher.subject.load(), config.fit))
    options = choices(config.exact, config.stand_in, config.free)

    def refuse(spec: Spec) -> None:
        least = config.most_reused
        refuse_below_floor(spec, price, options, config.granularity, config.budgets, ranges, least)

    if config.choose_tokens:
        smallest_floor(teacher.subject.spec, refuse)
    else:
        refuse(teacher.subject.spec)


def _chosen_tokens(
    run: Run, teacher: Model, pixels: np.ndarray, config: TrainingFreeConfig, price: Price
) -> tuple[Model, list[dict[str, Any]]]:
    """The teacher with the tokens that the budget is best spent with, and all that was tried."""
    kept = run.folder / "tokens.json"
    if not kept.is_file():
        options = choices(config.exact, config.stand_in, config.free)
        settings = (options, config.granularity, pixels, config.fit, config.score_images)
        losses, _ = measured_losses(teacher, *settings)
        tried = choose_tokens(
            teacher,
            config.granularity,
            options,
            weighed(losses, config.weigh),
            measure_ranges(teacher.student(), pixels),
            price,
            float(config.budgets[0].cost or 0),
            pixels[: config.score_images],
            lambda model, plan: _fitted(model, teacher, plan, pixels, config.fit),
        )
        write_text(kept, json.dumps({"tried": [each.to_json() for each in tried]}) + "\n")
    found = read_json(kept)["tried"]
    return teacher.with_tokens(found[0]["tokens"]), found


def _paid(
    run: Run,
    start: Model,
    teacher: Model,
    pixels: np.ndarray,
    config: TrainingFreeConfig,
    price: Price,
    tell: Callable[[str], None],
) -> tuple[dict[str, Student], dict[str, dict[str, Any]]]:
    """A fitted student for each budget in cost, and what result.json says of its cost."""
    options = choices(config.exact, config.stand_in, config.free)
    spec, granularity = start.subject.spec, config.granularity
    tell("measuring what every site's stand-ins lose")
    measured = known_measures(run, start, options, granularity, pixels, config.fit, config.score_images)
    losses = weighed(measured.losses, config.weigh)
    known = (losses, dict(measured.ranges), config.most_reused, not config.candidates)
    found = Affordable(spec, granularity, price, options, *known)
    cuts: dict[str, Student] = {}
    costs, most = {}, None
    smallest = min(budget.cost or 0 for budget in config.budgets)
    for budget in sorted(config.budgets, key=lambda budget: -float(budget.cost or 0)):
        name, cost, caps = budget.name, float(budget.cost or 0), caps_of(budget, spec, granularity)
        tell(f"fitting a plan for {price.show(cost)}")
        try:
            cut = settle(
                found, cost, lambda p: _fitted(start, teacher, p, pixels, config.fit), pixels, most, caps
            )
        except BudgetError:
            # The smallest comes last: if that and all others are too small, somebody has to hear of it.
            if not config.candidates or (not cuts and budget.cost == smallest):
                raise
            continue
        cuts[name], costs[name] = cut.student, describe_cost(price, cut.predicted_cost, cost)
        most = sum(sum(cut.student.plan().kept(kind)) for kind in KINDS)
    return {budget.name: cuts[budget.name] for budget in config.budgets if budget.name in cuts}, costs


def _fitted(start: Model, teacher: Model, plan: Plan, pixels: np.ndarray, config: FitConfig) -> Student:
    spec = start.subject.spec
    return fit(planned_student(spec, plan, teacher.weights), pixels, config, teacher.student())


def _record(
    run: Run, teacher: Model, data: Data, name: str, cut: Student, config: TrainingFreeConfig
) -> dict[str, Any]:
    """Writes one budget's plan and weights; gives what result.json says of it."""
    plan, folder = cut.plan(), cut_folder(run, name)
    write_cut(folder, plan, cut.weights())
    splits = {} if config.candidates else {"accuracy": data.test}
    measured = {
        key: accuracy(cut, Images(split, teacher.subject.preprocessing, config.memory_bytes))
        for key, split in (splits | {"validation_accuracy": data.validation}).items()
    }
    write_text(
        folder / "cut.json", json.dumps({"validation_accuracy": measured["validation_accuracy"]}) + "\n"
    )
    budget = next(budget for budget in config.budgets if budget.name == name)
    counted = {kind: sum(plan.kept(kind)) for kind in config.kept}
    return measured | describe_plan(plan) | {"budget": budget.sites | counted}


def accuracy(student: Student, images: Images) -> float:
    """The share of images that the student classifies rightly."""
    return int(count_correct(student, images, "cpu")) / len(images)
