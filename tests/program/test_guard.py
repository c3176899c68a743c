"""What the guard watches, what that costs, and that the certificate finds what could wrap."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))

from graphs import mixed_plan, public_of, small_spec, weights_of, with_ranges

from privit.artifact import Public
from privit.plan import Plan, uniform_plan
from privit.program.certificate import certify
from privit.program.graph import Graph
from privit.program.guard import LOOSE, all_watches
from privit.program.operation import Operation
from privit.program.operations import operations
from privit.serve.compile.compile import compile_program, server_values
from privit.serve.compile.listing import program_operations

SPEC = small_spec()
FITTED = uniform_plan(SPEC, "quadratic", "quadratic_attn")
PLANS = {"mixed": mixed_plan(SPEC), "fitted": FITTED, "untouched": uniform_plan(SPEC)}


def guarded(plan: Plan, short: bool) -> Public:
    public = public_of(SPEC)
    public = with_ranges(public, plan, weights_of(SPEC, plan)) if short else public
    return replace(public, guard=True)


@pytest.mark.parametrize("short", [True, False], ids=["short forms", "engine's functions"])
@pytest.mark.parametrize("name", PLANS)
def test_the_list_of_a_guarded_program_is_what_it_runs(name: str, short: bool) -> None:
    plan, public = PLANS[name], guarded(PLANS[name], short)
    program = compile_program(public, plan)
    found = Counter(program_operations(program.code, [entry.owner for entry in program.inputs]))
    listed = Counter(o for _, part in operations(Graph.of(public, plan)) for o in part)
    assert listed == found


def test_everything_is_compared_at_once() -> None:
    plan = mixed_plan(SPEC)
    with_guard = Graph.of(guarded(plan, True), plan)
    comparisons = sum(watch.comparisons for watch in all_watches(with_guard))
    *_, (name, last) = operations(with_guard)
    assert name == "guard"
    assert last[0] == Operation("compare_public", (comparisons + comparisons % 2,))
    assert [operation.name for operation in last].count("compare_public") == 2


def test_a_program_without_a_guard_is_as_it_was() -> None:
    plan = mixed_plan(SPEC)
    public = with_ranges(public_of(SPEC), plan, weights_of(SPEC, plan))
    assert "guard" not in dict(operations(Graph.of(public, plan)))
    assert "i32" not in compile_program(public, plan).code


def test_small_weights_are_certified() -> None:
    plan = FITTED
    public = guarded(plan, True)
    values = server_values(public, plan, weights_of(SPEC, plan))
    certificate = certify(Graph.of(public, plan), values, largest_pixel=1.0)
    assert [str(reach) for reach in certificate.open_places if "squared)" not in reach.place] == []


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("embed.weight", "blocks.0.norm1 (squared)"),
        ("blocks.0.qkv.weight", "blocks.0.heads.0 (k x v)"),
        ("blocks.0.out.weight", "blocks.0.attention (update)"),
        ("blocks.0.mlp.quadratic.up.weight", "blocks.0.mlp.quadratic (squared)"),
        ("blocks.0.mlp.quadratic.down.weight", "blocks.0.mlp (update)"),
        ("head.weight", "logits"),
    ],
)
def test_a_weight_that_lets_values_wrap_is_found(name: str, place: str) -> None:
    public = guarded(FITTED, True)
    values = server_values(public, FITTED, weights_of(SPEC, FITTED))
    values[name] = values[name] * np.float32(1e8)
    certificate = certify(Graph.of(public, FITTED), values, largest_pixel=1.0)
    assert place in [reach.place for reach in certificate.open_places]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("blocks.0.mix.weight", "blocks.0.attention (mixed)"),
        ("blocks.0.out.weight", "blocks.0.attention (update)"),
        ("blocks.1.heads.0.static", "blocks.1.attention (update)"),
    ],
)
def test_static_attention_is_certified_and_a_weight_that_lets_it_wrap_is_found(name: str, place: str) -> None:
    plan = uniform_plan(SPEC, "quadratic", "static_attn")
    public = guarded(plan, True)
    values = server_values(public, plan, weights_of(SPEC, plan))
    graph = Graph.of(public, plan)
    assert [str(r) for r in certify(graph, values, 1.0).open_places if "squared)" not in r.place] == []
    values[name] = values[name] * np.float32(1e10)
    assert place in [reach.place for reach in certify(graph, values, 1.0).open_places]


def test_a_bound_in_the_artifact_replaces_the_loose_one() -> None:
    public = guarded(FITTED, True)
    key = "guard.blocks.0.squares"
    loose = {watch.name: watch.high for watch in all_watches(Graph.of(public, FITTED))}
    public = replace(public, ranges=public.ranges | {key: 7.0})
    bound = {watch.name: watch.high for watch in all_watches(Graph.of(public, FITTED))}
    assert (loose[key], bound[key]) == (LOOSE, 7.0)
