"""Models and plans whose compiled programs the cost tests look into."""

from __future__ import annotations

from collections import Counter

import numpy as np

from privit.artifact import Preprocessing, Public
from privit.operators import TABLE, operator
from privit.plan import OWN_FACTOR, Plan, plan_from_ids
from privit.program.operation import Operation
from privit.program.ranges import score_keys, variance_keys
from privit.serve.compile.compile import compile_program
from privit.serve.compile.listing import program_operations
from privit.spec import Block, Granularity, Spec, sites, vit_spec

SPEC = vit_spec(8, 4, 16, 2, 2, classes=3, channels=1)


def ranges_for(spec: Spec) -> dict[str, float]:
    """Public ranges of every LayerNorm and every layer's scores."""
    found = {
        f"{norm}.variance_{end}": value for norm in spec.norms for end, value in (("low", 0.2), ("high", 3.0))
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
    return plan_from_ids(granularity, layers | {"norm": with_sources(layers["norm"])})


def with_sources(norms: list[np.ndarray]) -> list[np.ndarray]:
    """The ids with an exact LayerNorm wherever one was to reuse what none before it computes."""
    own = [o.id for o in TABLE if o.kind == "norm" and o.family in OWN_FACTOR]
    rows = [np.array(row) for ids in norms for row in ids]
    computed = np.zeros(rows[0].shape, dtype=bool)
    for row in rows:
        row[(row == operator("reused_norm").id) & ~computed] = operator("layer_norm").id
        computed |= np.isin(row, own)
    ends = np.cumsum([len(ids) for ids in norms])[:-1]
    return [np.array(part) for part in np.split(np.stack(rows), ends)]


def drawn_case(seed: int) -> tuple[Spec, Plan, dict[str, float]]:
    """Any small model, plan and ranges, some absent; mostly one block, since compiling takes longest."""
    rng = np.random.default_rng(seed)
    width = int(rng.choice([6, 12]))
    image_size = 4 * int(rng.choice([2, 2, 2, 3]))
    blocks, patches = [], (image_size // 4) ** 2
    for _ in range(1 + (rng.random() < 0.15)):
        pool = int(rng.integers(1, patches)) if patches > 1 and rng.random() < 0.3 else 0
        heads, wide = int(rng.choice([1, 1, 2, 3])), width * int(rng.integers(1, 3))
        blocks.append(Block(heads, wide, bool(rng.integers(2)), pool))
        patches = pool or patches
    class_token = bool(rng.random() < 0.7)
    spec = Spec(
        image_size=image_size,
        patch_size=4,
        channels=1,
        width=width,
        classes=2,
        blocks=tuple(blocks),
        class_token=class_token,
        pooling="cls" if class_token and rng.random() < 0.6 else "mean",
        final_norm="before_pool" if rng.integers(2) else "after_pool",
        norm_eps=float(rng.choice([1e-6, 1e-5])),
    )
    choices = (["token", "element", "layer"], ["row", "head", "layer"], ["layer", "class"])
    granularity = Granularity(*(str(rng.choice(each)) for each in choices))  # type: ignore[arg-type]
    layers: dict[str, list[np.ndarray]] = {}
    for kind, shapes in sites(spec, granularity).items():
        ids = [o.id for o in TABLE if o.kind == kind]
        few = [rng.choice(ids, size=rng.choice([1, 1, 2, 3]), replace=False) for _ in shapes]
        layers[kind] = [rng.choice(chosen, size=shape) for chosen, shape in zip(few, shapes, strict=True)]
    layers["norm"] = with_sources(layers["norm"])
    return spec, plan_from_ids(granularity, layers), _drawn_ranges(spec, rng)


def _drawn_ranges(spec: Spec, rng: np.random.Generator) -> dict[str, float]:
    found: dict[str, float] = {}
    for norm in spec.norms:
        low, high = np.exp(rng.uniform(-5, 5)), np.exp(rng.uniform(0, 6))
        if rng.random() < 0.4:
            found |= dict(zip(variance_keys(norm), (float(low), float(low * high)), strict=True))
    for i in range(spec.depth):
        drop, peak, mean_exp = rng.uniform(0.1, 9), rng.uniform(0.1, 9), np.exp(rng.uniform(-0.2, 2.3))
        if rng.random() < 0.7:
            found |= dict(zip(score_keys(f"blocks.{i}"), map(float, (drop, peak, mean_exp)), strict=True))
    return found


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
