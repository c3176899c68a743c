"""What is asked of a build, and what can be wrong with that before anything is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from privit.cost.budgets.budget import Budget, cost_name
from privit.cost.budgets.price import Price, Unit
from privit.errors import BudgetError, RequestError
from privit.presets import BEST, NORM_SHARE, PRESETS
from privit.spec import PAPER_KINDS

UNITS = ("seconds", "bytes", "rounds")
ASKED = "asked"
"""What the one budget of a choice is called."""
OPTIONS = "--max-loss, --max-seconds, --max-bytes, --max-rounds or --keep"


@dataclass(frozen=True)
class Request:
    """A model, data and what a prediction may cost or lose.

    `most` are amounts by unit, `keep` the share of GELUs and softmaxes that may stay exact, `max_loss` the
    points of accuracy that the student may lie below its teacher. `teacher` is a finished run that stands for
    the first stage. Epochs come from the number of images unless they are given.
    """

    model: str
    data: str
    out: Path
    most: dict[str, float]
    keep: float | None = None
    max_loss: float | None = None
    protocol: str = "cheetah"
    network: str = "lan"
    preset: str = BEST
    teacher: Path | None = None
    image_size: int | None = None
    train_limit: int | None = None
    teacher_epochs: int | None = None
    epochs: int | None = None
    seed: int = 0
    check: bool = True

    @property
    def price(self) -> Price | None:
        """The unit of the budget: seconds where accuracy decides, else the first that was given."""
        if self.max_loss is not None:
            return Price("seconds", self.protocol, self.network)
        first = next((unit for unit in UNITS if unit in self.most), None)
        return None if first is None else Price(cast(Unit, first), self.protocol, self.network)

    def budget(self, cost: float | None = None) -> Budget:
        """The budget that a plan is chosen for, or one rung's of `cost` beside all else that is asked for."""
        price = self.price
        share = {} if self.keep is None else dict.fromkeys(PAPER_KINDS, self.keep)
        if price is None:
            return Budget(share | {"norm": NORM_SHARE}, f"keep-{self.keep:g}")
        caps = {unit: most for unit, most in self.most.items() if unit != price.unit}
        if cost is None:
            return Budget(share, ASKED, self.most[price.unit], caps)
        return Budget(share, cost_name(price.unit, cost), cost, caps)


def check_request(request: Request) -> None:
    """Refuses what no model and no data could meet."""
    _check_budgets(request)
    known = (BEST, *PRESETS)
    if request.preset not in known:
        raise RequestError(f"no preset is called {request.preset!r}", f"known: {', '.join(known)}")
    if request.max_loss is not None and request.preset != BEST:
        raise RequestError(
            f"--max-loss was given beside --preset {request.preset}, whose search trains anew for every plan",
            "leave --preset away, or give what a prediction may cost",
        )
    if problems := Price("seconds", request.protocol, request.network).problems():
        raise RequestError(problems[0])


def _check_budgets(request: Request) -> None:
    if not request.most and request.keep is None and request.max_loss is None:
        raise BudgetError("no budget was given, so there is nothing to build for", f"give {OPTIONS}")
    if request.keep is not None and not 0 <= request.keep <= 1:
        raise BudgetError(
            f"--keep is {request.keep:g}, but a share from 0 to 1 was expected", "give a share such as 0.1"
        )
    if request.max_loss is not None and not 0 <= request.max_loss < 100:
        raise BudgetError(
            f"--max-loss is {request.max_loss:g}, but points of accuracy from 0 to 100 were expected",
            "give points such as 1",
        )
    for unit, most in request.most.items():
        if not 0 < most < math.inf:
            raise BudgetError(f"--max-{unit} is {most:g}, not a number above zero", "give what one may cost")


def one_amount(option: str, values: tuple[float, ...]) -> float | None:
    """The one value of an option; two that contradict each other are refused."""
    if len(set(values)) > 1:
        given = " and ".join(f"{value:g}" for value in values)
        raise BudgetError(
            f"--{option} was given {given}, but a build makes one model",
            f"give one of them; --teacher keeps the teacher for a second build (or {OPTIONS} together)",
        )
    return values[0] if values else None
