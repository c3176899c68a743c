"""A plan that was found under a cost, filled with exact sites up to a budget in sites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from privit.operators import BY_NAME
from privit.plan import Plan, plan_from_ids, site_budget
from privit.runs import load_run, read_arrays
from privit.spec import KINDS
from privit.train.descent.afford import choices
from privit.train.search import cut_folder
from privit.train.stages import read_model


def filled_plan(search_run: Path, budget: str | None, sites: Mapping[str, float]) -> Plan:
    """The plan of a search under a cost with as many exact sites more as `sites` allows of each kind.

    Rounds follow the layers that keep any, so all that a kind is short of goes to one layer, and to another
    only when that is full: the one in which these sites lose most with what stands there, as the search
    measured it in the untrained model.
    """
    run = load_run(search_run, "search")
    plan = read_model(run, cut_folder(run, budget) if budget else None).plan
    losses, config = read_arrays(run.folder / "losses.safetensors"), run.description["config"]
    levels = choices(config["exact"], config["stand_in"], config["free"])
    layers = {kind: [ids.copy() for ids in plan.layers[kind]] for kind in KINDS}
    for kind, value in sites.items():
        short = site_budget(value, plan.total(kind), kind) - sum(plan.kept(kind))
        if short <= 0:
            continue
        lost = [_lost(losses[f"losses/{kind}/{i}"], ids, levels[kind]) for i, ids in enumerate(layers[kind])]
        exact = BY_NAME[levels[kind][-1]].id
        while short > 0:
            best = max(range(len(lost)), key=lambda i: float(np.sort(lost[i])[-short:].sum()))
            flat = layers[kind][best].reshape(-1)
            worst = [i for i in np.argsort(-lost[best], kind="stable") if flat[i] != exact][:short]
            flat[worst] = exact
            lost[best] = np.full_like(lost[best], -np.inf)
            short -= len(worst)
    return plan_from_ids(plan.granularity, layers)


def _lost(losses: np.ndarray, ids: np.ndarray, levels: tuple[str, ...]) -> np.ndarray:
    """What every site of a layer loses with what stands there, flat; an exact one loses nothing."""
    level = np.argmax([ids == BY_NAME[name].id for name in levels], axis=0)
    return np.take_along_axis(losses, level[None], axis=0).ravel()
