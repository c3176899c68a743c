"""Budgets in cost on the command line: from arguments to settings, and from a run to what it costs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from privit.cli.output import note, show_rows
from privit.config import SearchConfig, free_choices
from privit.cost.budgets.budget import Budget, cost_name
from privit.cost.budgets.price import Price, Unit
from privit.errors import RequestError
from privit.locks import lock_folder
from privit.operators import FITTED
from privit.presets import NORM_SHARE
from privit.spec import KINDS, PAPER_KINDS, switched_kinds

MEASURED = {"bytes": "sent_bytes", "rounds": "rounds", "seconds": "seconds"}


def with_cost_budgets(
    config: SearchConfig,
    costs: Mapping[str, tuple[float, ...]],
    protocol: str,
    network: str,
    sites: Mapping[str, float] | None = None,
) -> SearchConfig:
    """The settings with the budgets in cost that were given, the largest first; as they are if none was.

    The first unit is the budget's; one amount in another, and a number of `sites`, are caps on every plan.
    """
    given = {unit: values for unit, values in costs.items() if values}
    if not given:
        return config
    unit, *others = given
    several = [other for other in others if len(given[other]) > 1]
    if several:
        options = " and ".join(f"--max-{other.replace('_', '-')}" for other in several)
        raise RequestError(
            f"{options} was given several amounts beside --max-{unit.replace('_', '-')}",
            "give budgets in one unit, and one amount in each other: a cap for all of them",
        )
    caps = {other: given[other][0] for other in others}
    budgets = tuple(
        Budget(dict(sites or {}), cost_name(unit, value), value, caps) for value in _falling(given[unit])
    )
    return replace(config, budgets=budgets, price=Price(cast(Unit, unit), protocol, network))


def with_choices(config: SearchConfig, fitted: bool) -> SearchConfig:
    """The settings with a third choice for each kind that has one, beside fitted stand-ins if asked for."""
    stand_in = FITTED if fitted else config.stand_in
    return replace(config, stand_in=dict(stand_in), free=config.free or free_choices(stand_in))


def with_site_budgets(
    config: SearchConfig, keep: tuple[float, ...], given: Mapping[str, float | None], best: bool = False
) -> SearchConfig:
    """The settings with the budgets in sites that were given; as they are if none was.

    In the best known way a share is one of GELUs and softmaxes, beside a known share of LayerNorms.
    """
    sites = _per_kind(given)
    if keep and sites:
        raise RequestError("--keep was given beside a budget per kind", "give one or the other")
    _refuse_counts(keep)
    if keep:
        kinds = switched_kinds(config.kinds)
        norms = {"norm": NORM_SHARE} if best and "norm" in kinds else {}
        budgets = tuple(Budget(dict.fromkeys(kinds, share) | norms, f"keep-{share:g}") for share in keep)
        return replace(config, budgets=budgets)
    if not sites:
        return config
    # A kind without a budget stays as it is.
    budget = Budget(dict.fromkeys(PAPER_KINDS, 1.0) | sites)
    return replace(config, budgets=(budget,), kinds=tuple(k for k in KINDS if k in sites))


def _per_kind(given: Mapping[str, float | None]) -> dict[str, float]:
    # 1 is one site, not all of them; what is neither a share nor a count is refused by `check_config`.
    return {k: int(v) if v.is_integer() and abs(v) < 1e16 else v for k, v in given.items() if v is not None}


def _refuse_counts(keep: tuple[float, ...]) -> None:
    for share in keep:
        if not 0 <= share <= 1:
            raise RequestError(
                f"--keep is {share:g}, but a share of the sites from 0 to 1 was expected",
                "--gelu-budget, --softmax-budget and --norm-budget take numbers of sites",
            )


def site_caps(
    keep: tuple[float, ...], given: Mapping[str, float | None], kinds: tuple[str, ...], best: bool = False
) -> dict[str, float]:
    """The most exact sites that plans of budgets in cost may have; if `best`, a share is not of norms."""
    if len(keep) > 1:
        raise RequestError(
            "--keep was given several shares beside a budget in cost", "give one: a cap for all of them"
        )
    sites = _per_kind(given)
    if keep and sites:
        raise RequestError("--keep was given beside a budget per kind", "give one or the other")
    _refuse_counts(keep)
    return dict.fromkeys(PAPER_KINDS if best else switched_kinds(kinds), keep[0]) if keep else sites


def _falling(values: tuple[float, ...]) -> list[float]:
    return sorted(set(values), reverse=True)


def measured_budgets(run: Path) -> dict[str, Any]:
    """The run's result with what each budget's program costs on the engine.

    Bytes and rounds are counted with all parties in one process; a budget in seconds is timed between
    processes, over the network it was asked for.
    """
    from privit.runs import load_run
    from privit.train.finetune import export

    opened = load_run(run, "search")
    with lock_folder(run, again=True):
        result = dict(opened.result() or {})
        for name, figures in result["budgets"].items():
            note(f"measuring budget {name}")
            with tempfile.TemporaryDirectory(prefix="privit-search-") as folder:
                export(run, Path(folder) / "artifact", budget=name)
                figures |= measured(Path(folder) / "artifact", figures.get("price"))
            if figures["plan"] == result["plan"]:
                result |= figures
        return opened.finish(result)


def measured(artifact: Path, price: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an artifact's program costs when it is run, under keys that say so."""
    from privit.serve.measure.bench import bench
    from privit.serve.measure.sessions import measure_queries

    asked = Price(**price) if price else Price()
    found = bench(artifact, protocol=asked.protocol)
    figures = {"sent_bytes": found["sent_bytes"], "rounds": found["rounds"]}
    described: dict[str, Any] = {"measured": figures | {"measured_on": "simulated"}}
    if asked.unit == "seconds":
        (run,) = measure_queries(artifact, asked.protocol, [(asked.network, 1)])
        figures["seconds"] = run["seconds"]
        described["measured"] = figures | {"measured_on": "processes", "network": asked.network}
    if asked.unit in MEASURED:
        described["measured_cost"] = figures[MEASURED[asked.unit]]
    return described


def show_kept(result: Mapping[str, Any]) -> None:
    """What each layer keeps, for each budget in cost."""
    for name, figures in result["budgets"].items():
        if "price" not in figures:
            continue
        price = Price(**figures["price"])
        said = f"{name}: {price.show(figures['predicted_cost'])} predicted under {price.setting}"
        if "measured_cost" in figures:
            said += f", {price.show(figures['measured_cost'])} measured"
        rows = [(kind, *figures["kept"][kind]) for kind in KINDS if kind in figures["kept"]]
        show_rows(said, ("kept", *(f"layer {i}" for i in range(len(rows[0]) - 1))), rows)
