"""Models and plans whose compiled programs the cost tests look into."""

from __future__ import annotations

from collections import Counter

import numpy as np

from privit.artifact import Preprocessing, Public
from privit.cost.spu.subject import Operation
from privit.operators import TABLE
from privit.plan import Plan, plan_from_ids
from privit.serve.engine.compile import compile_program
from privit.serve.engine.listing import program_operations
from privit.spec import Granularity, Spec, sites, vit_spec

SPEC = vit_spec(8, 4, 16, 2, 2, classes=3, channels=1)


def ranges_for(spec: Spec) -> dict[str, float]:
    """Public ranges of every LayerNorm and every layer's scores."""
    norms = [f"blocks.{i}.norm{n}" for i in range(spec.depth) for n in (1, 2)] + ["norm"]
    found = {
        f"{norm}.variance_{end}": value for norm in norms for end, value in (("low", 0.2), ("high", 3.0))
    }
    for i in range(spec.depth):
        at = f"blocks.{i}.softmax."
        found |= {at + "drop": 3.0, at + "peak": 4.0, at + "mean_exp": 2.0}
    return found


def drawn_plan(spec: Spec, granularity: Granularity, seed: int) -> Plan:
    """A plan in which every operator may stand at any site."""
    rng = np.random.default_rng(seed)
    layers = {
        kind: [rng.choice([o.id for o in TABLE if o.kind == kind], size=shape) for shape in shapes]
        for kind, shapes in sites(spec, granularity).items()
    }
    return plan_from_ids(granularity, layers)


def public_of(spec: Spec, ranges: dict[str, float] | None = None) -> Public:
    """The public part of a model without a history."""
    names = tuple(str(i) for i in range(spec.classes))
    preprocessing = Preprocessing(
        spec.image_size, spec.channels, (0.0,) * spec.channels, (1.0,) * spec.channels
    )
    return Public(spec, preprocessing, names, ranges or {})


def compiled_operations(spec: Spec, plan: Plan, ranges: dict[str, float] | None = None) -> Counter[Operation]:
    """What the compiled program really runs."""
    program = compile_program(public_of(spec, ranges), plan)
    return Counter(program_operations(program.code, [entry.owner for entry in program.inputs]))
