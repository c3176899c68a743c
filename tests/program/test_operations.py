"""The listed operations are those of the compiled program."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import pytest
from programs import SPEC, compiled_operations, drawn_plan, ranges_for

from privit.cost.spu import decisions, short_forms
from privit.cost.spu.operations import operations
from privit.cost.spu.subject import REWRITES, Operation
from privit.cost.spu.written_operations import written_operations
from privit.plan import plan_from_counts, uniform_plan
from privit.program import ranges
from privit.program.graph import sum_range
from privit.serve.engine.compile import program_of
from privit.serve.engine.listing import program_operations
from privit.serve.model import approximations, rewrites
from privit.serve.model.as_written import written_inputs, written_parts
from privit.spec import Granularity

MEAN = replace(SPEC, pooling="mean", final_norm="after_pool")
SCALED = replace(SPEC, blocks=tuple(replace(block, layer_scale=True) for block in SPEC.blocks))
CASES = {
    "untouched": (SPEC, uniform_plan(SPEC), {}),
    "kept by count": (SPEC, plan_from_counts(SPEC, [2, 1], [3, 2]), ranges_for(SPEC)),
    "every operator": (SPEC, drawn_plan(SPEC, Granularity(), 1), {}),
    "every operator, short forms": (SPEC, drawn_plan(SPEC, Granularity(), 2), ranges_for(SPEC)),
    "by element and head": (SPEC, drawn_plan(SPEC, Granularity("element", "head"), 3), {}),
    "by layer": (SCALED, drawn_plan(SCALED, Granularity("layer", "layer"), 4), {}),
    "mean pooling": (MEAN, drawn_plan(MEAN, Granularity(), 5), ranges_for(MEAN)),
}


def listed(segments: object) -> Counter[Operation]:
    return Counter(operation for _, found in segments for operation in found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", CASES)
def test_the_list_is_what_the_compiled_program_runs(case: str) -> None:
    spec, plan, known = CASES[case]
    assert listed(operations(spec, plan, ranges=known)) == compiled_operations(spec, plan, known)


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


def test_every_rewrite_is_known_by_name() -> None:
    assert {field.name for field in fields(rewrites.Rewrites)} == REWRITES


@pytest.mark.parametrize(("drop", "peak", "mean_exp"), [(1.0, 1.5, 1.3), (3.0, 4.0, 2.0), (6.0, 7.0, 8.0)])
def test_short_forms_are_as_long_as_the_engine_side_makes_them(
    drop: float, peak: float, mean_exp: float
) -> None:
    keys = dict(zip(("drop", "peak", "mean_exp"), (drop, peak, mean_exp), strict=True))
    known = {f"blocks.0.softmax.{name}": value for name, value in keys.items()}
    ours, theirs = short_forms.score_range(known, 0), ranges.score_range(known, 0)
    assert ours is not None
    assert theirs is not None
    factor, low, high = sum_range(50, theirs)
    assert (
        short_forms.exp_squarings(ours) == approximations.short_exp(theirs.low, theirs.high, factor).squarings
    )
    assert short_forms.reciprocal_steps(ours) == approximations.short_reciprocal(low, high).steps


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.6), (0.2, 3.0), (0.01, 40.0), (1e-6, 1e4), (500.0, 900.0)])
def test_the_short_root_is_as_long_as_the_engine_side_makes_it(low: float, high: float) -> None:
    width, eps, (below, above) = 192, 1e-6, short_forms.VARIANCE_MARGINS
    found = approximations.short_root(width * (low / below + eps), width * (high * above + eps))
    steps = short_forms.root_steps({"norm.variance_low": low, "norm.variance_high": high}, "norm", width, eps)
    assert steps == (None if found is None else found.steps)


def test_margins_and_tolerances_are_those_of_the_engine_side() -> None:
    for name in ("VARIANCE_MARGINS", "SCORE_MARGIN", "SUM_MARGIN", "MAX_MEAN_EXP"):
        assert getattr(short_forms, name) == getattr(ranges, name)
    for name in (
        "EXP_TOLERANCE",
        "ROOT_TOLERANCE",
        "RECIPROCAL_TOLERANCE",
        "FRACTION_BITS",
        "LEAST_SLOPE_STEPS",
    ):
        assert getattr(short_forms, name) == getattr(approximations, name)


def test_merging_is_decided_as_the_graph_decides_it() -> None:
    sizes = [(50, merged, 192, hidden) for merged in range(51) for hidden in (192, 384, 768)]
    assert [decisions.merging_pays(*s) for s in sizes] == [rewrites.merging_pays(*s) for s in sizes]


def test_scores_are_skipped_as_the_graph_decides_it() -> None:
    sizes = [(rows, tokens, width) for rows in (1, 20, 200) for tokens in (5, 50, 200) for width in (8, 64)]
    assert [decisions.linear_pays(*s) for s in sizes] == [rewrites.linear_pays(*s) for s in sizes]
