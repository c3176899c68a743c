"""What a model on disk costs, with the keys that a report uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privit.cost.budgets.price import Price as CostPrice
from privit.cost.budgets.pricing import Pricer
from privit.cost.estimate import breakdown, estimate
from privit.cost.network import NETWORKS
from privit.plan import Plan, load_plan
from privit.runs import read_json
from privit.spec import Spec


@dataclass(frozen=True)
class Price:
    """Costs by the axes of a report, ReLUOps by part, rounds by segment of the program and by kind."""

    costs: Mapping[str, float]
    parts: Mapping[str, float]
    layer_rounds: Mapping[str, float]
    kind_rounds: Mapping[str, Sequence[float]] = field(default_factory=dict)


Ranges = Mapping[str, float] | None


@dataclass
class Prices:
    """Prices models under one protocol; a plan that was seen before is not priced again."""

    protocol: str
    known: dict[Any, Price] = field(default_factory=dict)
    rounds: dict[Any, Any] = field(default_factory=dict)
    pricers: dict[Any, Pricer] = field(default_factory=dict)

    def of(self, spec: Spec, plan: Plan, ranges: Ranges = None) -> Price:
        """The price of one prediction; with an artifact's `ranges`, as that artifact runs."""
        key = (spec, plan.hash(), _frozen(ranges))
        if key not in self.known:
            found = _price(spec, plan, self.protocol, ranges)
            self.known[key] = replace(found, kind_rounds=self.kind_rounds(spec, plan, ranges))
        return self.known[key]

    def layer_rounds(
        self, spec: Spec, plan: Plan, ranges: Ranges = None, rewrites: str = "all"
    ) -> Mapping[str, float]:
        """Rounds of each segment of the program: embedding, layers, head."""
        key = (spec, plan.hash(), _frozen(ranges), rewrites)
        if key not in self.rounds:
            found = estimate(spec, plan, "spu", protocol=self.protocol, ranges=ranges, rewrites=rewrites)
            self.rounds[key] = {layer["name"]: layer["rounds"] for layer in found["layers"]}
        return self.rounds[key]

    def kind_rounds(self, spec: Spec, plan: Plan, ranges: Ranges = None) -> Mapping[str, Sequence[float]]:
        """Rounds of attention (softmax) and MLP (gelu), layer by layer; LayerNorms are in neither."""
        key = (spec, plan.hash(), _frozen(ranges))
        if ("kinds", key) not in self.rounds:
            pricer = self.pricers.setdefault(
                (spec, _frozen(ranges)), Pricer(spec, CostPrice("rounds", self.protocol), ranges or {})
            )
            self.rounds["kinds", key] = {
                kind: [
                    pricer.value(pricer.cell(kind, layer, ids, plan.granularity))
                    for layer, ids in enumerate(plan.layers[kind])
                ]
                for kind in ("softmax", "gelu")
            }
        return self.rounds["kinds", key]


def read_planned(folder: Path, model: Path | None = None) -> tuple[Spec, Plan]:
    """Architecture and plan of a run's folder, or the plan of one of its cuts and the `model` it is of."""
    described = read_json((model or folder) / "model.json")
    return Spec.from_json(described["spec"]), load_plan(folder / "plan.safetensors")


def _frozen(ranges: Ranges) -> Any:
    return None if ranges is None else tuple(sorted(ranges.items()))


def _price(spec: Spec, plan: Plan, protocol: str, ranges: Ranges) -> Price:
    relu_ops, and_gates = estimate(spec, plan, "paper"), estimate(spec, plan, "circuits")
    on = {
        name: estimate(spec, plan, "spu", protocol=protocol, network=name, ranges=ranges) for name in NETWORKS
    }
    lan = on["lan"]
    costs = {
        "relu_ops": relu_ops.total,
        "and_gates": and_gates.total,
        "sent_bytes": lan["sent_bytes"],
        "rounds": lan["rounds"],
        **{f"seconds_{name}": found["seconds"] for name, found in on.items()},
        "kept_gelu_elements": plan.kept_gelu_elements(spec),
        "kept_softmax_rows": plan.kept_softmax_rows(spec),
    }
    return Price(costs, breakdown(relu_ops), {layer["name"]: layer["rounds"] for layer in lan["layers"]})
