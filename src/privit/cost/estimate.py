"""What a plan costs, and what to remove from it next."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privit.cost.gates import profiles
from privit.cost.gates.counts import (
    LAYER_NORM,
    final_norm,
    final_norm_rows,
    rows_per_site,
    scalars_per_site,
    site_counts,
    tokens_per_norm,
)
from privit.cost.gates.profiles import Profile
from privit.errors import MissingExtra, RequestError
from privit.operators import BY_NAME, STAND_IN
from privit.plan import Plan
from privit.spec import KINDS, NORM_PLACES, PAPER_KINDS, Spec

STAND_INS = "stand_ins"
PARTS = (*PAPER_KINDS, STAND_INS, LAYER_NORM)
"""What a cost is made of: exact GELUs, exact softmaxes, what stands in for anything, and exact LayerNorms."""


@dataclass(frozen=True)
class Estimate:
    """The cost of one private prediction in one profile's unit, estimated and not measured.

    `layers` has a dict per block, part to cost; `after` is the last LayerNorm.
    """

    profile: str
    unit: str
    layers: tuple[dict[str, float], ...]
    after: float
    extrapolated: tuple[str, ...]
    plan: dict[str, Any]

    @property
    def total(self) -> int:
        """The whole prediction."""
        return round(sum(sum(layer.values()) for layer in self.layers) + self.after)

    def ratio(self, other: Estimate) -> float:
        """How many times `other` this costs; refuses to mix two profiles."""
        if self.profile != other.profile:
            raise RequestError(
                f"a ratio of {self.profile} to {other.profile} would compare two units",
                "estimate both plans with one profile",
            )
        return self.total / other.total

    def to_json(self) -> dict[str, Any]:
        """Plain data with the keys that scripts rely on."""
        return {
            self.unit: self.total,
            "profile": self.profile,
            "by_part": {part: round(cost) for part, cost in breakdown(self).items()},
            "per_layer": [{part: round(cost) for part, cost in layer.items()} for layer in self.layers],
            "extrapolated": list(self.extrapolated),
            "measured_on": "estimated",
            **self.plan,
        }


def estimate(spec: Spec, plan: Plan, profile: str = "paper", **options: Any) -> Any:
    """An `Estimate` of the plan under the named profile.

    `profile="spu"` predicts bytes, rounds and seconds instead; its options are those of
    `privit.cost.spu.predict.estimate_spu` (protocol, network).
    """
    if profile == "spu":
        return importlib.import_module("privit.cost.spu.predict").estimate_spu(spec, plan, **options)
    if options:
        raise RequestError(
            f"the profile {profile} takes no {', '.join(sorted(options))}", "those belong to --profile spu"
        )
    return _estimate(spec, plan, profiles.profile(profile))


def _length(spec: Spec, layer: int, operator: str) -> int:
    return {"gelu": 1, "softmax": spec.tokens_in(layer), "norm": spec.width}[BY_NAME[operator].kind]


def _part(operator: str) -> str:
    entry = BY_NAME[operator]
    if not entry.exact:
        return STAND_INS
    return LAYER_NORM if entry.kind == "norm" else entry.kind


def _estimate(spec: Spec, plan: Plan, prices: Profile) -> Estimate:
    layers, extrapolated = [], set()
    for layer, counts in enumerate(site_counts(spec, plan)):
        costs = dict.fromkeys(PARTS, 0.0)
        for operator, count in counts.items():
            length = _length(spec, layer, operator)
            costs[_part(operator)] += count * prices.cost(operator, length)
            if prices.extrapolated(operator, length):
                extrapolated.add(f"{operator}({length})")
        layers.append(costs)
    last = prices.cost(final_norm(spec, plan), spec.width)
    after = final_norm_rows(spec) * last if prices.final_norm else 0.0
    return Estimate(
        prices.name, prices.unit, tuple(layers), after, tuple(sorted(extrapolated)), _kept(spec, plan)
    )


def _kept(spec: Spec, plan: Plan) -> dict[str, Any]:
    return {
        "kept_gelu": sum(plan.kept("gelu")),
        "kept_softmax": sum(plan.kept("softmax")),
        "kept_norm": sum(plan.kept("norm")),
        "tokens": [spec.tokens_in(layer) for layer in range(spec.depth)],
        "granularity": {kind: plan.granularity.of(kind) for kind in KINDS},
        "kept_gelu_elements": plan.kept_gelu_elements(spec),
    }


def breakdown(found: Estimate) -> dict[str, float]:
    """The cost by part, over all layers."""
    total = {part: sum(layer[part] for layer in found.layers) for part in PARTS}
    total[LAYER_NORM] += found.after
    return total


@dataclass(frozen=True)
class Removal:
    """What one layer's operator of one kind costs, and what putting `stand_in` there would save."""

    layer: int
    kind: str
    operator: str
    stand_in: str
    sites: int
    site_cost: float
    site_saving: float
    group_cost: float
    group_saving: float
    share: float


def explain(spec: Spec, plan: Plan, profile: str = "paper") -> list[Removal]:
    """Per layer and kind, what the exact sites cost and save, the most expensive group first.

    The stand-in is the cheapest one that the layer already uses, or the paper's where it uses none. Of
    LayerNorms, those of the blocks are looked at, without the first, which has nothing to reuse.
    """
    prices = profiles.profile(profile)
    total = _estimate(spec, plan, prices).total
    removals = [
        _removal(spec, plan, prices, layer, counts, operator, total)
        for layer, counts in enumerate(site_counts(spec, plan))
        for operator in counts
        if BY_NAME[operator].exact
    ]
    return sorted(
        (found for found in removals if found.sites), key=lambda r: (-r.group_saving, r.layer, r.kind)
    )


def _removal(
    spec: Spec, plan: Plan, prices: Profile, layer: int, counts: dict[str, int], operator: str, total: int
) -> Removal:
    kind, length = BY_NAME[operator].kind, _length(spec, layer, operator)
    used = [BY_NAME[name] for name in counts]
    others = [entry.name for entry in used if entry.kind == kind and not entry.exact]
    stand_in = min(others or [STAND_IN[kind]], key=lambda name: prices.cost(name, length))
    if kind == "norm":
        sites, weight = _replaceable_norms(spec, plan, layer, operator)
    else:
        weight = {"gelu": scalars_per_site, "softmax": rows_per_site}[kind](spec, plan, layer)
        sites = counts[operator] // weight
    cost = weight * prices.cost(operator, length)
    saving = cost - weight * prices.cost(stand_in, length)
    share = sites * cost / total if total else 0.0
    return Removal(layer, kind, operator, stand_in, sites, cost, saving, sites * cost, sites * saving, share)


def _replaceable_norms(spec: Spec, plan: Plan, layer: int, operator: str) -> tuple[int, float]:
    """How many of a block's LayerNorm sites have this operator and could do without, and tokens of each."""
    ids = plan.layers["norm"][layer][: len(NORM_PLACES)]
    found = ids == BY_NAME[operator].id
    if layer == 0:
        found = found.copy()
        found[0] = False
    tokens = np.broadcast_to(tokens_per_norm(spec, plan, layer), ids.shape)[found]
    return int(found.sum()), float(tokens.mean()) if tokens.size else 0.0


# Okabe and Ito's palette, which people with any common colour blindness can tell apart.
_COLOURS = {"gelu": "#0072B2", "softmax": "#E69F00", STAND_INS: "#009E73", LAYER_NORM: "#CC79A7"}
_LABELS = {"gelu": "GELU", "softmax": "softmax", STAND_INS: "stand-ins", LAYER_NORM: "LayerNorm"}


def plot_breakdown(found: Estimate, path: Path) -> Path:
    """Writes the pie of the cost by part (the paper's latency figure) and returns its path."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "report") from error
    parts = {part: cost for part, cost in breakdown(found).items() if cost > 0}
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.add_subplot()
    unit = found.unit.replace("_", " ")
    if parts:
        axes.pie(
            list(parts.values()),
            labels=[f"{_LABELS[part]}\n{cost / 1e6:.2f} M" for part, cost in parts.items()],
            colors=[_COLOURS[part] for part in parts],
            autopct="%.0f%%",
            wedgeprops={"edgecolor": "white"},
        )
    axes.set_title(f"{found.total / 1e6:.2f} M {unit}, estimated ({found.profile})", fontsize=10)
    figure.savefig(path, dpi=150)
    return path
