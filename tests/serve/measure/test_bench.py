from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from graphs import SEMI2K, image_of, mixed_plan, outcome, public_of, small_spec, weights_of

from privit.artifact import Artifact
from privit.errors import RequestError
from privit.plan import plan_from_counts, uniform_plan
from privit.serve.compile.compile import client_values, compile_program, server_values
from privit.serve.engine.profile import Counts
from privit.serve.engine.protocols import protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.bench import GRAPHS, Measured, bench, largest_error, measure, with_random_ranges
from privit.spec import vit_spec

PROMISED = [
    "kept_gelu",
    "kept_softmax",
    "kept_gelu_elements",
    "relu_ops",
    "and_gates",
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
    subject = with_random_ranges(Artifact(public_of(spec), plan_from_counts(spec, [1], [2])), seed=0)
    result = bench(subject, "semi2k-benchmark", GRAPHS, progress=said.append)
    assert all(name in result for name in PROMISED)
    assert (result["protocol"], result["private"], result["measured_on"]) == (
        "semi2k-benchmark",
        False,
        "simulated",
    )
    assert result["ranges"].startswith("measured on random weights")
    assert said == ["this plan", *GRAPHS]
    against = result["against"]
    assert result["sent_bytes"] < against["scatter"]["sent_bytes"] < against["dense"]["sent_bytes"]
    assert against["dense-rewritten"]["sent_bytes"] < against["dense"]["sent_bytes"]
    assert result["rounds"] < against["without-ranges"]["rounds"] < against["dense"]["rounds"]
    assert sum(layer["sent_bytes"] for layer in result["layers"]) == result["sent_bytes"]
    # erf and tanh GELUs and the engine's exp differ; the graphs are the same model all the same.
    assert all(graph["max_logit_error"] < 0.05 for graph in (result, *against.values()))
    assert json.loads(json.dumps(result)) == result


def test_seconds_are_told_by_layer_operation_party_and_product() -> None:
    spec = replace(small_spec(), blocks=small_spec().blocks[:1])
    subject = Artifact(public_of(spec), plan_from_counts(spec, [1], [2]))
    result = bench(subject, "semi2k-benchmark", products=True)
    layers = result["layers"]
    assert sum(layer["seconds"] for layer in layers) == pytest.approx(result["seconds"])
    assert [party["name"] for party in result["parties"]] == ["server", "client"]
    for entry in (result, *layers):
        assert sum(party["computing_seconds"] for party in entry["parties"]) > 0
    for layer in layers:
        assert 0 < sum(entry["seconds"] for entry in layer["operations"].values()) < layer["seconds"]
    # What nobody sends for takes time, too.
    assert {"dot", "slice"} <= {row["name"] for row in result["operations"]}
    products = result["products"]
    (head,) = (row for row in products if row["sizes"] == [1, 16, 5])
    assert (head["name"], head["times"]) == ("matmul_weight", 1)
    assert all(row["seconds_each"] > 0 and row["sent_bytes_each"] > 0 for row in products)
    assert [r["seconds"] for r in products] == sorted((r["seconds"] for r in products), reverse=True)


def test_without_ranges_every_graph_runs_on_the_generic_functions() -> None:
    spec = replace(small_spec(), blocks=small_spec().blocks[:1])
    bare = Artifact(public_of(spec), plan_from_counts(spec, [1], [2]))
    graphs = ["dense-rewritten", "without-ranges"]
    result, short = (bench(each, "semi2k-benchmark", graphs) for each in (bare, with_random_ranges(bare, 0)))
    assert result["ranges"] == "none"
    assert result["rounds"] == result["against"]["without-ranges"]["rounds"]
    dense, short_dense = (each["against"]["dense-rewritten"]["rounds"] for each in (result, short))
    assert short_dense < dense


def test_on_cheetah_the_first_query_of_a_session_costs_what_later_ones_do() -> None:
    # More than 2,048 hidden values and packed products: all that an engine prepares on first use.
    spec = vit_spec(16, 4, 32, 1, 2, classes=3, channels=1)
    public, plan, found = public_of(spec), uniform_plan(spec), protocol("cheetah")
    program = compile_program(public, plan)
    values = server_values(public, plan, weights_of(spec, plan)) | client_values(public, image_of(spec))
    with Simulator(found) as simulator:
        simulator.give(program.inputs, values)
        first, *later = (simulator.run(program.executable) for _ in range(4))
        setup = simulator.setup
    # One query in three refills the stock of products.
    second = sorted(later, key=lambda counts: counts.sent_bytes)[1]
    assert first.sent_bytes == pytest.approx(second.sent_bytes, rel=0.05)
    assert first.rounds == pytest.approx(second.rounds, rel=0.05)
    assert setup.rounds > first.rounds


@pytest.mark.parametrize(("clear", "error"), [(1.25, 0.25), (np.inf, None), (np.nan, None)])
def test_an_error_that_is_no_number_is_none(clear: float, error: float | None) -> None:
    measured = Measured((), Counts(()), np.array([1.0, 2.0]), np.array([clear, 2.0]))
    assert largest_error(measured) == error


def test_an_unknown_graph_is_refused_before_anything_runs() -> None:
    subject = Artifact(public_of(small_spec()), uniform_plan(small_spec()))
    with pytest.raises(RequestError, match="no graph is called 'sparse'"):
        bench(subject, "semi2k-benchmark", ["sparse"])


def test_the_scatter_graph_refuses_stand_ins_it_does_not_know() -> None:
    spec = small_spec()
    subject = Artifact(public_of(spec), uniform_plan(spec, "quadratic", "squared_attn"))
    with pytest.raises(RequestError, match="not quadratic"):
        bench(subject, "semi2k-benchmark", ["scatter"])


@pytest.mark.parametrize("graph", ["dense", "scatter"])
def test_a_graph_as_commonly_written_takes_no_batch(graph: str) -> None:
    spec = vit_spec(8, 4, 16, 2, 2, 5, channels=1)
    with pytest.raises(RequestError, match=f"the graph {graph} takes one image"):
        bench(Artifact(public_of(spec), uniform_plan(spec), None), against=[graph], batch=2)
