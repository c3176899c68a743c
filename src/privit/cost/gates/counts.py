"""How often each operator stands in each layer: all that a cost needs to know of a plan."""

from __future__ import annotations

import numpy as np

from privit.operators import BY_ID, TABLE
from privit.plan import Plan
from privit.spec import NORM_PLACES, Spec

LAYER_NORM = "layer_norm"


def site_counts(spec: Spec, plan: Plan) -> list[dict[str, int]]:
    """For each layer, operator name to how often it is computed.

    GELU-kind operators count in scalars, softmax-kind operators in rows of scores and norm-kind operators in
    tokens, whatever the plan's granularity; the model's last LayerNorm is `final_norm`. One pass of
    `bincount` over each array: no loop over sites.
    """
    layers = []
    for i in range(spec.depth):
        counts: dict[str, int] = {}
        for kind, per_site in (("gelu", scalars_per_site), ("softmax", rows_per_site)):
            found = np.bincount(plan.layers[kind][i].ravel(), minlength=256)
            weight = per_site(spec, plan, i)
            counts |= {o.name: int(found[o.id]) * weight for o in TABLE if o.kind == kind and found[o.id]}
        ids = plan.layers["norm"][i][: len(NORM_PLACES)]
        rows_of = np.broadcast_to(tokens_per_norm(spec, plan, i), ids.shape)
        for site, rows in zip(ids.ravel(), rows_of.ravel(), strict=True):
            name = BY_ID[int(site)].name
            counts[name] = counts.get(name, 0) + int(rows)
        layers.append(counts)
    return layers


def scalars_per_site(spec: Spec, plan: Plan, layer: int) -> int:
    """How many scalars one GELU site of this layer stands for."""
    wide, tokens = spec.blocks[layer].mlp_width, spec.tokens_in(layer)
    return {"token": wide, "element": 1, "layer": wide * tokens}[plan.granularity.gelu]


def rows_per_site(spec: Spec, plan: Plan, layer: int) -> int:
    """How many rows of scores one softmax site of this layer stands for."""
    tokens = spec.tokens_in(layer)
    return {"row": 1, "head": tokens, "layer": tokens * spec.blocks[layer].heads}[plan.granularity.softmax]


def tokens_per_norm(spec: Spec, plan: Plan, layer: int) -> np.ndarray:
    """How many tokens a norm site of this layer stands for: all, or the class token and the patches."""
    tokens = spec.tokens_in(layer)
    if plan.granularity.norm == "layer":
        return np.array(tokens)
    return np.array([1, tokens - 1] if spec.class_token else [tokens])


def final_norm(spec: Spec, plan: Plan) -> str:
    """The operator of the model's last LayerNorm, for the tokens that are read."""
    ids = np.atleast_1d(plan.layers["norm"][-1][len(NORM_PLACES)])
    return BY_ID[int(ids[0 if spec.pooling == "cls" else -1])].name


def final_norm_rows(spec: Spec) -> int:
    """Rows of the last LayerNorm that are read: the class token's alone, where only that is pooled."""
    if spec.pooling == "cls" or spec.final_norm == "after_pool":
        return 1
    return spec.tokens_in(spec.depth)
