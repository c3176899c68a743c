"""The listed operations are those of the compiled program."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from programs import SPEC, compiled_operations, drawn_case, drawn_plan, ranges_for

from privit.plan import plan_from_counts, uniform_plan
from privit.program.choices import Rewrites
from privit.program.graph import Graph
from privit.program.operation import Operation
from privit.program.operations import operations
from privit.program.operations.as_written import written_operations
from privit.serve.compile.compile import program_of
from privit.serve.compile.listing import program_operations
from privit.serve.model.as_written import written_inputs, written_parts
from privit.spec import Granularity, with_tokens

MEAN = replace(SPEC, pooling="mean", final_norm="after_pool")
SCALED = replace(SPEC, blocks=tuple(replace(block, layer_scale=True) for block in SPEC.blocks))
POOLED = with_tokens(SPEC, (5, 2))
CASES = {
    "untouched": (SPEC, uniform_plan(SPEC), {}),
    "kept by count": (SPEC, plan_from_counts(SPEC, [2, 1], [3, 2]), ranges_for(SPEC)),
    "every operator": (SPEC, drawn_plan(SPEC, Granularity(), 1), {}),
    "every operator, short forms": (SPEC, drawn_plan(SPEC, Granularity(), 2), ranges_for(SPEC)),
    "by element and head": (SPEC, drawn_plan(SPEC, Granularity("element", "head"), 3), {}),
    "by layer": (SCALED, drawn_plan(SCALED, Granularity("layer", "layer"), 4), {}),
    "static attention": (SPEC, uniform_plan(SPEC, "quadratic", "static_attn"), ranges_for(SPEC)),
    "static attention, a pool": (POOLED, uniform_plan(POOLED, "affine", "static_attn"), {}),
    "mean pooling": (MEAN, drawn_plan(MEAN, Granularity(), 5), ranges_for(MEAN)),
}


def listed(segments: object) -> Counter[Operation]:
    return Counter(operation for _, found in segments for operation in found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", CASES)
def test_the_list_is_what_the_compiled_program_runs(case: str) -> None:
    spec, plan, known = CASES[case]
    assert listed(operations(Graph(spec, plan, ranges=known))) == compiled_operations(spec, plan, known)


def test_the_list_of_the_graph_as_commonly_written_is_what_it_runs() -> None:
    parts = written_parts(SPEC, uniform_plan(SPEC), "dense")

    def whole(values):  # type: ignore[no-untyped-def]
        tokens = parts[0][1](values)
        for _, part in parts[1:]:
            tokens = part({**values, "tokens": tokens})
        return tokens

    inputs = written_inputs(SPEC)
    program = program_of(whole, inputs)
    found = Counter(program_operations(program.code, [entry.owner for entry in inputs]))
    assert listed(written_operations(SPEC)) == found


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_model_plan_and_ranges_the_list_is_what_the_compiled_program_runs(seed: int) -> None:
    spec, plan, known = drawn_case(seed)
    assert listed(operations(Graph(spec, plan, ranges=known))) == compiled_operations(spec, plan, known)


def test_a_graph_without_a_rewrite_is_never_priced() -> None:
    graph = Graph(SPEC, uniform_plan(SPEC), Rewrites(fold=False))
    with pytest.raises(AssertionError, match="fold=False"):
        list(operations(graph))
