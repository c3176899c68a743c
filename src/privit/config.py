"""The settings of the three training stages, their presets and what can be wrong with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from privit.cost.budgets.budget import Budget, budgets_problems
from privit.cost.budgets.price import Price
from privit.earlier import as_before_norms, with_norms
from privit.errors import RequestError, config_error, refusals
from privit.operators import FREE, STAND_IN, UNTOUCHED, operator
from privit.spec import KINDS, PAPER_KINDS, Granularity

Augmentation = Mapping[str, Any]
"""Settings of train/loop/augment.py by name; empty means that images are used as they are."""


@dataclass(frozen=True)
class TrainConfig:
    """What the three stages have in common.

    `batch_size` is global: over all processes and accumulated steps. `schedule` moves the learning rate:
    `step` multiplies it by `decay` every `decay_epochs`, `cosine` takes it to zero over the stage. Without a
    `gradient_clip`, gradients are clipped to 1 while a LayerNorm is replaced (docs/fitted.md).
    """

    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    schedule: Literal["constant", "step", "cosine"] = "constant"
    decay: float = 0.1
    decay_epochs: int = 30
    warmup_epochs: int = 0
    gradient_clip: float | None = None
    accumulation: int = 1
    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    workers: int = 0
    memory_bytes: int = 4 << 30
    augmentation: Augmentation = field(default_factory=dict)
    seed: int = 0
    log_steps: bool = False

    def problems(self) -> list[str]:
        """Everything that is wrong with these settings, in sentences."""
        positive = ("epochs", "batch_size", "learning_rate", "accumulation", "decay_epochs", "memory_bytes")
        found = [f"{n} is {getattr(self, n)}, not above zero" for n in positive if not getattr(self, n) > 0]
        not_negative = ("weight_decay", "warmup_epochs", "workers", "seed")
        found += [f"{n} is {getattr(self, n)}, below zero" for n in not_negative if not getattr(self, n) >= 0]
        if self.gradient_clip is not None and not self.gradient_clip > 0:
            found.append(f"gradient_clip is {self.gradient_clip}, not above zero")
        if self.accumulation > 0 and self.batch_size % self.accumulation:
            found.append(f"batch_size {self.batch_size} is not divisible by accumulation {self.accumulation}")
        return found


@dataclass(frozen=True)
class TeacherConfig(TrainConfig):
    """How a teacher is fine-tuned; the defaults are the paper's (section 4.1).

    `input_noise` is the deviation of Gaussian noise on the normalised pixels, which keeps a teacher from
    learning a few hundred images by heart. `new_head` replaces a head of another number of classes;
    None does so for models by name (timm:NAME, timm:NAME@FILE, hf:NAME), whose head is of other data, and
    refuses it for a file alone, which is somebody's trained model.
    """

    epochs: int = 10
    schedule: Literal["constant", "step", "cosine"] = "step"
    image_size: int | None = None
    pretrained: bool = True
    new_head: bool | None = None
    train_limit: int | None = None
    validation_share: float = 0.1
    data_seed: int = 0
    input_noise: float = 0.0
    select: Literal["best", "last"] = "best"

    def problems(self) -> list[str]:
        """Everything that is wrong with these settings, in sentences."""
        found = super().problems()
        if not 0 < self.validation_share < 1:
            found.append(f"validation_share is {self.validation_share}, not between 0 and 1")
        if not self.input_noise >= 0:
            found.append(f"input_noise is {self.input_noise}, below zero")
        return found


def free_choices(stand_in: Mapping[str, str]) -> dict[str, str]:
    """For each kind whose stand-in has a square, the one that is free of it."""
    return {kind: FREE[name] for kind, name in stand_in.items() if name in FREE}


@dataclass(frozen=True)
class Descent:
    """How the switches of one kind are pressed down.

    `penalty` is lambda at the start, `growth` is kappa. The penalty grows when the count of active
    switches fell by less than `min_drop` (sites, or a share of all as a float below 1; 0: when it rose).
    """

    penalty: float = 3e-5
    growth: float = 1.1
    min_drop: float = 2


@dataclass(frozen=True)
class SearchConfig(TrainConfig):
    """How weights and switches are trained together (the paper's Algorithm 1); defaults are the paper's.

    `epochs` is the most that may be spent: then the plan is cut by rank, with a warning.
    Penalties stay as they are for `penalty_warmup_epochs`; `warmup_epochs` is the learning rate's.
    `kinds` are switched; LayerNorms only where they are named. `tokens` in each block, class token
    included, pool patches where they fall; none: all stay to the end.
    `price` is the unit of budgets in cost, `free` an operator for each kind that costs less than the
    stand-in: a third choice, which only budgets in cost make use of. Losses are measured one group at a time
    in the untouched model; `weigh` says by kind how many times they count in a plan for a cost.
    """

    epochs: int = 200
    weight_decay: float = 0.0
    penalty_warmup_epochs: int = 5
    budgets: tuple[Budget, ...] = (Budget({"gelu": 0.1, "softmax": 0.1}),)
    descents: dict[str, Descent] = field(
        default_factory=lambda: {"gelu": Descent(min_drop=2), "softmax": Descent(min_drop=200)}
    )
    switch_learning_rate: float = 1e-4
    epsilon: float = 1e-3
    binarize: Literal["rank", "threshold"] = "rank"
    binarize_when: Literal["early", "late"] = "early"
    kinds: tuple[str, ...] = PAPER_KINDS
    tokens: tuple[int, ...] = ()
    granularity: Granularity = field(default_factory=Granularity)
    exact: dict[str, str] = field(default_factory=lambda: dict(UNTOUCHED))
    stand_in: dict[str, str] = field(default_factory=lambda: dict(STAND_IN))
    free: dict[str, str] = field(default_factory=dict)
    weigh: dict[str, float] = field(default_factory=dict)
    price: Price | None = None
    start: Literal["teacher", "random"] = "teacher"
    distill: bool = True
    temperature: float = 4.0

    def __post_init__(self) -> None:
        for name in ("exact", "stand_in"):
            object.__setattr__(self, name, with_norms(name, getattr(self, name)))

    def descent(self, kind: str) -> Descent:
        """How a kind is pressed down: LayerNorms, of which there are few, as GELUs unless told otherwise."""
        if kind in self.descents:
            return self.descents[kind]
        own = self.descents["gelu"]
        return own if isinstance(own.min_drop, float) else replace(own, min_drop=min(own.min_drop, 1))

    def problems(self) -> list[str]:
        """Everything that is wrong with these settings, in sentences."""
        found = super().problems()
        found += _kind_problems(self)
        found += budgets_problems(self.budgets, self.price)
        for kind, name in self.free.items():
            found += refusals(partial(operator, name, kind))
        found += weigh_problems(self.weigh)
        # Adam moves a switch by about its learning rate a step, so dead switches jitter by a few of them.
        if self.epsilon < 10 * self.switch_learning_rate * (1 - 1e-9):
            found.append(
                f"epsilon is {self.epsilon:g}, below 10 x the switch learning rate "
                f"({self.switch_learning_rate:g}): switches that have died would still count as active; "
                f"give at least {10 * self.switch_learning_rate:g}"
            )
        if not self.penalty_warmup_epochs >= 0:
            found.append(f"penalty_warmup_epochs is {self.penalty_warmup_epochs}, below zero")
        if self.warmup_epochs > 0 and self.schedule == "constant":
            found.append(
                f"warmup_epochs is {self.warmup_epochs}, but a constant learning rate does not warm up; "
                "epochs before penalties may grow are penalty_warmup_epochs"
            )
        if not self.temperature > 0:
            found.append(f"temperature is {self.temperature}, not above zero")
        return found


@dataclass(frozen=True)
class FinetuneConfig(TrainConfig):
    """How the weights are trained on once the plan is frozen; the defaults are the paper's.

    `swap` replaces an operator before the first step: {"gelu": "relu"} makes PriViT-R. `operator_rate` is the
    learning rate of fitted operators' parameters, as a share of the weights'. `hidden` weighs how far the
    student's tokens are from the teacher's, block by block, beside the other losses.
    """

    epochs: int = 50
    schedule: Literal["constant", "step", "cosine"] = "cosine"
    distill: bool = True
    temperature: float = 4.0
    swap: dict[str, str] = field(default_factory=dict)
    operator_rate: float = 1.0
    hidden: float = 0.0
    select: Literal["best", "last"] = "best"

    def problems(self) -> list[str]:
        """Everything that is wrong with these settings, in sentences."""
        found = super().problems()
        if not self.temperature > 0:
            found.append(f"temperature is {self.temperature}, not above zero")
        if not self.operator_rate >= 0:
            found.append(f"operator_rate is {self.operator_rate}, below zero")
        if not self.hidden >= 0:
            found.append(f"hidden is {self.hidden}, below zero")
        if self.hidden and not self.distill:
            found.append(
                f"hidden is {self.hidden}, but nothing is learned from the teacher (distill is false)"
            )
        for old, new in self.swap.items():
            found += refusals(partial(_swapped, old, new))
        return found


def weigh_problems(weigh: Mapping[str, float]) -> list[str]:
    """Everything that is wrong with what losses of each kind count, in sentences."""
    found = [f"weigh names {kind!r}; known: {', '.join(KINDS)}" for kind in weigh if kind not in KINDS]
    return found + [
        f"{kind} is weighed {value!r} times, not a finite number above zero"
        for kind, value in weigh.items()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf
    ]


def _swapped(old: str, new: str) -> None:
    operator(new, operator(old).kind)


def _kind_problems(config: SearchConfig) -> list[str]:
    found = [
        f"{kind!r} is not a kind; known: {', '.join(KINDS)}" for kind in config.kinds if kind not in KINDS
    ]
    if not config.kinds:
        found.append("no kind is switched, so there is nothing to search")
    found += [f"no descent is given for {kind}" for kind in PAPER_KINDS if kind not in config.descents]
    for kind in KINDS:
        for role, names in (("exact", config.exact), ("stand-in", config.stand_in)):
            if kind not in names:
                found.append(f"no {role} operator is given for {kind}")
            else:
                found += refusals(partial(operator, names[kind], kind))
    for kind, descent in config.descents.items():
        if not descent.penalty > 0 or not math.isfinite(descent.penalty):
            found.append(f"the {kind} penalty is {descent.penalty}, not above zero")
        if not descent.growth > 1:
            found.append(
                f"the {kind} growth is {descent.growth}, so its penalty never grows; give more than 1"
            )
    return found


def type_problems(config: TrainConfig) -> list[str]:
    """Settings whose value is of another type than declared, or not among the declared choices."""
    found = []
    for name, hint in get_type_hints(type(config)).items():
        value, choices = getattr(config, name), get_args(hint)
        if get_origin(hint) is Literal:
            if value not in choices:
                found.append(f"{name} is {value!r}, not one of {', '.join(map(str, choices))}")
        elif not _fits(value, choices if get_origin(hint) is UnionType else (hint,)):
            expected = " or ".join(getattr(h, "__name__", str(h)) for h in choices or (hint,))
            found.append(f"{name} is {value!r}, but {expected} was expected")
    return found


def _fits(value: Any, hints: tuple[Any, ...]) -> bool:
    for hint in hints:
        plain = get_origin(hint) or hint
        numbers = (int, float) if plain is float else plain
        if isinstance(value, numbers) and (plain is bool or not isinstance(value, bool)):
            return True
    return False


Config = TypeVar("Config", bound=TrainConfig)


def check_config(config: TrainConfig) -> None:
    """Refuses settings that cannot work; all problems come in one error."""
    # A value of the wrong type cannot be compared, so types come first.
    if problems := type_problems(config) or config.problems():
        raise config_error(problems)


def to_json(config: TrainConfig) -> dict[str, Any]:
    """Plain data from which `from_json` makes an equal config."""
    data = asdict(config)
    if isinstance(config, SearchConfig):
        data["budgets"] = [budget.to_json() for budget in config.budgets]
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}
    return as_before_norms(plain)


def from_json(kind: type[Config], data: Mapping[str, Any]) -> Config:
    """The config that `to_json` described; unknown settings are refused by name."""
    unknown = sorted(data.keys() - {f.name for f in fields(kind)})
    if unknown:
        known = ", ".join(f.name for f in fields(kind))
        raise RequestError(f"{kind.__name__} has no setting {', '.join(unknown)}", f"known: {known}")
    makers: dict[str, Any] = {
        "budgets": lambda value: tuple(Budget(**budget) for budget in value),
        "descents": lambda value: {k: Descent(**descent) for k, descent in value.items()},
        "granularity": lambda value: Granularity(**value),
        "price": lambda value: None if value is None else Price(**value),
        "kinds": lambda value: (value,) if isinstance(value, str) else tuple(value),
        "tokens": tuple,
    }
    values = dict(data)
    for name in makers.keys() & values.keys():
        try:
            values[name] = makers[name](values[name])
        except (TypeError, AttributeError, RequestError) as error:
            said = error.message if isinstance(error, RequestError) else error
            raise RequestError(
                f"{name} is {values[name]!r}: {said}", "write it as config.json does"
            ) from error
    return kind(**values)


def changed(config: Config, **changes: Any) -> Config:
    """The config with some settings changed, checked."""
    new = replace(config, **changes)
    check_config(new)
    return new
