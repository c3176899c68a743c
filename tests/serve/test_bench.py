from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from graphs import SEMI2K, image_of, mixed_plan, outcome, public_of, small_spec, weights_of

from privit.artifact import Artifact
from privit.errors import RequestError
from privit.plan import plan_from_counts, uniform_plan
from privit.serve.bench import GRAPHS, bench, measure

PROMISED = [
    "kept_gelu",
    "kept_softmax",
    "kept_gelu_elements",
    "granularity",
    "sent_bytes",
    "rounds",
    "setup_bytes",
    "setup_rounds",
    "seconds",
    "max_logit_error",
    "protocol",
    "private",
    "measured_on",
]


def test_segments_sum_to_the_whole_program_exactly() -> None:
    spec = small_spec()
    plan = mixed_plan(spec)
    weights = weights_of(spec, plan)
    parts = measure(public_of(spec), plan, weights, image_of(spec), SEMI2K)
    whole = outcome(public_of(spec), plan, weights)
    assert parts.total.ranks == whole.counts.ranks
    assert [name for name, _ in parts.segments] == ["embedding", "layer 0", "layer 1", "head"]
    assert np.abs(parts.logits - whole.simulated).max() < 0.02


def test_a_synthetic_plan_is_measured_against_every_graph_in_one_run() -> None:
    spec = replace(small_spec(), blocks=small_spec().blocks[:1])
    said: list[str] = []
    subject = Artifact(public_of(spec), plan_from_counts(spec, [1], [2]))
    result = bench(subject, "semi2k-benchmark", GRAPHS, progress=said.append)
    assert all(name in result for name in PROMISED)
    assert (result["protocol"], result["private"], result["measured_on"]) == (
        "semi2k-benchmark",
        False,
        "simulated",
    )
    assert result["ranges"].startswith("measured on the random weights")
    assert said == ["this plan", *GRAPHS]
    against = result["against"]
    assert result["sent_bytes"] < against["scatter"]["sent_bytes"] < against["dense"]["sent_bytes"]
    assert against["dense-rewritten"]["sent_bytes"] < against["dense"]["sent_bytes"]
    assert result["rounds"] < against["without-ranges"]["rounds"] < against["dense"]["rounds"]
    assert sum(layer["sent_bytes"] for layer in result["layers"]) == result["sent_bytes"]
    # erf and tanh GELUs and the engine's exp differ; the graphs are the same model all the same.
    assert all(graph["max_logit_error"] < 0.05 for graph in (result, *against.values()))
    assert json.loads(json.dumps(result)) == result


def test_on_cheetah_a_bench_shows_a_later_query_and_charges_the_first_to_set_up() -> None:
    spec = replace(small_spec(), blocks=small_spec().blocks[:1])
    subject = Artifact(public_of(spec), plan_from_counts(spec, [1], [2]))
    found = bench(subject, "cheetah")
    # Filling the stock of transfers takes some two thousand rounds; a query of this model, far fewer.
    assert found["rounds"] < 500 < found["setup_rounds"]
    assert found["sent_bytes"] < found["setup_bytes"]


def test_an_unknown_graph_is_refused_before_anything_runs() -> None:
    subject = Artifact(public_of(small_spec()), uniform_plan(small_spec()))
    with pytest.raises(RequestError, match="no graph is called 'sparse'"):
        bench(subject, "semi2k-benchmark", ["sparse"])


def test_the_scatter_graph_refuses_stand_ins_it_does_not_know() -> None:
    spec = small_spec()
    subject = Artifact(public_of(spec), uniform_plan(spec, "quadratic", "squared_attn"))
    with pytest.raises(RequestError, match="not quadratic"):
        bench(subject, "semi2k-benchmark", ["scatter"])
