"""Plans that a fine-tuning is given: made from a count or a cost, cut from a search, or filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privit.config import SearchConfig, from_json
from privit.cost.budgets.matched import plan_at_cost
from privit.cost.budgets.pricing import Pricer
from privit.plan import Plan, load_plan
from privit.runs import load_run
from privit.spec import PAPER_KINDS
from privit.sweep.run.possible import check_met


def given_plan(stages: Path, source: Path, budget: str | None, wanted: dict[str, Any]) -> Plan:
    """The plan that a fine-tuning is given, where no search found it."""
    from privit.train.baselines import layerwise_plan, random_plan, spread_plan, without_last_layers
    from privit.train.stages import read_model

    if "cost" in wanted:
        config = from_json(SearchConfig, wanted["search"])
        return plan_within(source, wanted["how"], config, wanted["cost"], wanted.get("seed", 0))
    if wanted["how"] == "cut":
        check_met(stages / wanted["search"], wanted["budget"])
        return load_plan(stages / wanted["search"] / "budgets" / wanted["budget"] / "plan.safetensors")
    if wanted["how"] == "filled":
        from privit.train.descent.fill import filled_plan

        return filled_plan(source, budget, wanted["sites"])
    if wanted["how"] == "layers":
        largest = load_plan(source / "budgets" / str(budget) / "plan.safetensors")
        kinds = tuple(wanted["kinds"])
        return without_last_layers(largest, wanted["layers"], wanted["stand_in"], kinds)
    config = from_json(SearchConfig, wanted["search"])
    spec = read_model(load_run(source)).subject.spec
    sites = {k: wanted["sites"].get(k, 1.0) if k in config.kinds else 1.0 for k in PAPER_KINDS}
    operators = {"granularity": config.granularity, "exact": config.exact, "stand_in": config.stand_in}
    if wanted["how"] == "random":
        return random_plan(spec, sites["gelu"], sites["softmax"], wanted["seed"], **operators)  # type: ignore[arg-type]
    make = spread_plan if wanted["how"] == "spread" else layerwise_plan
    return make(spec, sites["gelu"], sites["softmax"], **operators)  # type: ignore[arg-type]


def plan_within(teacher: Path, how: str, config: SearchConfig, cost: float, seed: int) -> Plan:
    """The largest plan of a method without a search that the cost pays for, priced with the teacher's ranges.

    `how` is random, spread, or layers: whole layers from the first on.
    """
    from privit.train.baselines import layerwise_plan, random_plan, spread_plan
    from privit.train.descent.cost_ground import teacher_ranges
    from privit.train.stages import read_model

    assert config.price is not None
    model = read_model(load_run(teacher, "teacher"))
    spec = model.subject.spec
    pricer = Pricer(spec, config.price, teacher_ranges(model, model.subject.load(), config.seed))

    def plan_of(share: float) -> Plan:
        shares = {kind: share if kind in config.kinds else 1.0 for kind in PAPER_KINDS}
        operators = (config.granularity, config.exact, config.stand_in)
        if how == "random":
            return random_plan(spec, shares["gelu"], shares["softmax"], seed, *operators)
        make = spread_plan if how == "spread" else layerwise_plan
        return make(spec, shares["gelu"], shares["softmax"], *operators)

    return plan_at_cost(pricer, cost, plan_of)
