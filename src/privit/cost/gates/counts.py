"""How often each operator stands in each layer: all that a cost needs to know of a plan."""

from __future__ import annotations

import numpy as np

from privit.operators import TABLE
from privit.plan import Plan
from privit.spec import Block, Spec

LAYER_NORM = "layer_norm"
_NORMS_PER_BLOCK = 2


def site_counts(spec: Spec, plan: Plan) -> list[dict[str, int]]:
    """For each layer, operator name to how often it is computed, plus the rows of LayerNorm.

    GELU-kind operators count in scalars and softmax-kind operators in rows of scores, whatever the
    plan's granularity. One pass of `bincount` over each array: no loop over sites.
    """
    layers = []
    for i, block in enumerate(spec.blocks):
        counts: dict[str, int] = {}
        for kind, per_site in (("gelu", scalars_per_site), ("softmax", rows_per_site)):
            found = np.bincount(plan.layers[kind][i].ravel(), minlength=256)
            weight = per_site(spec, plan, block)
            counts |= {o.name: int(found[o.id]) * weight for o in TABLE if o.kind == kind and found[o.id]}
        counts[LAYER_NORM] = _NORMS_PER_BLOCK * spec.tokens
        layers.append(counts)
    return layers


def scalars_per_site(spec: Spec, plan: Plan, block: Block) -> int:
    """How many scalars one GELU site of this block stands for."""
    sizes = {"token": block.mlp_width, "element": 1, "layer": block.mlp_width * spec.tokens}
    return sizes[plan.granularity.gelu]


def rows_per_site(spec: Spec, plan: Plan, block: Block) -> int:
    """How many rows of scores one softmax site of this block stands for."""
    sizes = {"row": 1, "head": spec.tokens, "layer": spec.tokens * block.heads}
    return sizes[plan.granularity.softmax]


def final_norm_rows(spec: Spec) -> int:
    """Rows of the last LayerNorm that are read: the class token's alone, where only that is pooled."""
    if spec.pooling == "cls" or spec.final_norm == "after_pool":
        return 1
    return spec.tokens
