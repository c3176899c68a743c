"""What a search may keep or spend: budgets in sites and in cost, and what can be wrong with them."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, cast

from privit.cost.budgets.price import Price, Unit
from privit.errors import refusals
from privit.plan import check_site_budget
from privit.spec import PAPER_KINDS


@dataclass(frozen=True)
class Budget:
    """How many exact sites of each kind may stay, or what one prediction may cost.

    `sites` holds a whole number of sites or a share as a float up to 1; `cost` is in the unit of the search's
    price, and then it is the search that divides it between kinds and layers. Beside a cost, `sites` are the
    most that may stay of the kinds it names, and `caps` the most that may be spent in other units.
    """

    sites: dict[str, float] = field(default_factory=dict)
    name: str = "final"
    cost: float | None = None
    caps: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data; a budget in sites reads as it did before there were others."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        return found if self.caps else {name: value for name, value in found.items() if name != "caps"}


def spend(cost: float, name: str = "final") -> Budget:
    """A budget in what one prediction costs."""
    return Budget({}, name, cost)


def cost_name(unit: str, value: Any) -> str:
    """What a budget in cost is called, and its folder: 60e6 bytes bytes-60000000, 2.5 seconds seconds-2.5."""
    # Beyond, floats are not exact anyway, and a folder's name has at most 255 letters.
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e16
    return f"{unit.replace('_', '-')}-{int(value) if whole else value}".replace("+", "")


def keep(share: float, name: str = "final") -> Budget:
    """The same share of GELUs and of softmaxes; every LayerNorm stays."""
    return Budget(dict.fromkeys(PAPER_KINDS, share), name)


def budgets_problems(budgets: tuple[Budget, ...], price: Price | None) -> list[str]:
    """Everything that is wrong with the budgets of a search, in sentences."""
    found = [] if price is None else price.problems()
    for budget in budgets:
        found += _budget_problems(budget)
        if price is not None:
            units = [unit for unit in budget.caps if unit != price.unit]
            found += [text for unit in units for text in replace(price, unit=cast(Unit, unit)).problems()]
            if price.unit in budget.caps:
                found.append(f"budget {budget.name!r} has a cost and a cap in {price.unit}; give one of them")
    names = [budget.name for budget in budgets]
    if not names:
        found.append("no budget is given")
    if len(set(names)) < len(names):
        found.append(f"budgets share a name: {', '.join(names)}")
    costs = [budget.cost is not None for budget in budgets]
    if any(costs) and price is None:
        found.append("a budget in cost is given, but no price that says in which unit")
    if any(costs) and not all(costs):
        found.append("budgets in sites and in cost are mixed; search them in two runs")
    if names and not any(costs) and price is not None:
        found.append("a price is given, but no budget in cost")
    return found


def _budget_problems(budget: Budget) -> list[str]:
    found = []
    if budget.cost is None:
        unsaid = [kind for kind in PAPER_KINDS if kind not in budget.sites]
        found += [f"budget {budget.name!r} says nothing about {kind}" for kind in unsaid]
    elif isinstance(budget.cost, bool) or not isinstance(budget.cost, (int, float)):
        found.append(f"the cost of budget {budget.name!r} is {budget.cost!r}, not a number")
    elif not 0 < budget.cost < math.inf:
        expected = "above zero" if budget.cost <= 0 else "a finite number"
        found.append(f"the cost of budget {budget.name!r} is {budget.cost}, not {expected}")
    if budget.caps and budget.cost is None:
        found.append(f"budget {budget.name!r} has caps in {', '.join(budget.caps)}, but no cost")
    found += [
        f"the cap of budget {budget.name!r} in {unit} is {value!r}, not a number above zero"
        for unit, value in budget.caps.items()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf
    ]
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", budget.name):
        found.append(f"budget name {budget.name!r} cannot be a folder's; use letters, digits, . and -")
    for kind, value in budget.sites.items():
        # The number of sites is known only with the model; what is wrong for every model is found here.
        found += refusals(partial(check_site_budget, value, kind))
    return found
