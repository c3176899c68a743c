"""The torch student and the jax graph are the same network, whatever stands at the sites."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import image_of, public_of, small_spec, weights_of

from privit.operators import BY_NAME, TABLE
from privit.plan import Plan, plan_from_ids, uniform_plan
from privit.program.choices import Rewrites
from privit.program.forms import GELU_MAX_ERROR
from privit.program.graph import Graph
from privit.serve.compile.compile import client_values, server_values
from privit.serve.model.forward import forward
from privit.spec import KINDS, Granularity, Spec, sites
from privit.train.student.vit import Student

POOLINGS = {
    "cls": {"pooling": "cls"},
    "mean": {"pooling": "mean"},
    "mean, norm after": {"pooling": "mean", "final_norm": "after_pool", "class_token": False},
}
GRANULARITIES = {
    "gelu": [Granularity(gelu="token"), Granularity(gelu="element"), Granularity(gelu="layer")],
    "softmax": [Granularity(softmax="row"), Granularity(softmax="head"), Granularity(softmax="layer")],
}
# The short GELU is off by up to GELU_MAX_ERROR a value, which two blocks pass on; all else is float32.
TOLERANCE = {"gelu": 5 * GELU_MAX_ERROR}


def largest_difference(spec: Spec, plan: Plan, rewrites: Rewrites | None = None) -> float:
    weights = weights_of(spec, plan)
    student = Student(spec, plan.granularity)
    student.set_plan(plan)
    student.load_weights(weights)
    with torch.no_grad():
        expected = student.eval()(torch.from_numpy(image_of(spec))[None])[0].numpy()
    public = public_of(spec)
    values = server_values(public, plan, weights, rewrites) | client_values(public, image_of(spec))
    found = np.asarray(forward(Graph.of(public, plan, rewrites), values))
    return float(np.abs(found - expected).max())


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("name", [entry.name for entry in TABLE])
def test_every_operator_gives_the_logits_of_the_torch_student(name: str, pooling: str) -> None:
    kind = BY_NAME[name].kind
    chosen = {"gelu": "identity", "softmax": "squared_attn"} | {kind: name}
    spec = small_spec(layer_scale=True, **POOLINGS[pooling])
    for granularity in GRANULARITIES[kind]:
        plan = uniform_plan(spec, chosen["gelu"], chosen["softmax"], granularity)
        assert largest_difference(spec, plan) < TOLERANCE.get(name, 1e-3), granularity


@pytest.mark.parametrize("rewrites", [Rewrites(), Rewrites(fold=False), Rewrites(late_reciprocal=False)])
@pytest.mark.parametrize("granularity", [Granularity(), Granularity("element", "head")])
def test_operators_may_be_mixed_in_a_layer(granularity: Granularity, rewrites: Rewrites) -> None:
    spec = small_spec()
    ids = {kind: [entry.id for entry in TABLE if entry.kind == kind] for kind in KINDS}
    plan = plan_from_ids(
        granularity,
        {
            kind: [np.resize(ids[kind], shape) for shape in shapes]
            for kind, shapes in sites(spec, granularity).items()
        },
    )
    assert largest_difference(spec, plan, rewrites) < TOLERANCE["gelu"]
