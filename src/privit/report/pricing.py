"""What a model on disk costs, with the keys that a report uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privit.cost.estimate import breakdown, estimate
from privit.cost.network import NETWORKS
from privit.plan import Plan, load_plan
from privit.runs import read_json
from privit.spec import Spec


@dataclass(frozen=True)
class Price:
    """Costs by the axes of a report, ReLUOps by part, and rounds by segment of the program."""

    costs: Mapping[str, float]
    parts: Mapping[str, float]
    layer_rounds: Mapping[str, float]


@dataclass
class Prices:
    """Prices models under one protocol; a plan that was seen before is not priced again."""

    protocol: str
    known: dict[Any, Price] = field(default_factory=dict)
    rounds: dict[Any, Mapping[str, float]] = field(default_factory=dict)

    def of(self, spec: Spec, plan: Plan, ranges: Mapping[str, float] | None = None) -> Price:
        """The price of one prediction; with an artifact's `ranges`, as that artifact runs."""
        key = (spec, plan.hash(), None if ranges is None else tuple(sorted(ranges.items())))
        if key not in self.known:
            self.known[key] = _price(spec, plan, self.protocol, ranges)
        return self.known[key]

    def layer_rounds(self, spec: Spec, plan: Plan, rewrites: str = "all") -> Mapping[str, float]:
        """Rounds of each segment of the program: embedding, layers, head."""
        key = (spec, plan.hash(), rewrites)
        if key not in self.rounds:
            found = estimate(spec, plan, "spu", protocol=self.protocol, rewrites=rewrites)
            self.rounds[key] = {layer["name"]: layer["rounds"] for layer in found["layers"]}
        return self.rounds[key]


def read_planned(folder: Path) -> tuple[Spec, Plan]:
    """Architecture and plan of a run's folder."""
    return Spec.from_json(read_json(folder / "model.json")["spec"]), load_plan(folder / "plan.safetensors")


def _price(spec: Spec, plan: Plan, protocol: str, ranges: Mapping[str, float] | None) -> Price:
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
