"""A program of several images: its list of operations, and what of it grows with the images."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from programs import SPEC, drawn_case, public_of, ranges_for

from privit.errors import RequestError
from privit.plan import plan_from_counts, uniform_plan
from privit.program.choices import MOST_IMAGES, TOGETHER, Batch, batch_for
from privit.program.graph import Graph
from privit.program.operations import operations
from privit.serve.compile.compile import compile_program
from privit.serve.compile.listing import program_operations

BATCHES = (Batch(2, 1), Batch(3, 3), Batch(3, 2), Batch(2, 2))
# Between them: pools, constant and fitted heads, heads that skip scores, split LayerNorms, one block of a
# class token, a guard that has nothing to watch, and every way in which images share a product.
SEEDS = (3, 15, 20, 25, 35, 71, 78, 128, 136, 168)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_list_of_a_batch_is_what_the_compiled_program_runs(seed: int) -> None:
    spec, plan, known = drawn_case(seed)
    public, batch = replace(public_of(spec, known), guard=seed % 2 == 1), BATCHES[seed % len(BATCHES)]
    program = compile_program(public, plan, batch=batch)
    found = Counter(program_operations(program.code, [entry.owner for entry in program.inputs]))
    assert Counter(o for _, part in operations(Graph.of(public, plan, None, batch)) for o in part) == found


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_images_are_more_columns_of_what_static_attention_mixes(batch: Batch) -> None:
    plan, public = uniform_plan(SPEC, "quadratic", "static_attn"), public_of(SPEC, ranges_for(SPEC))
    program = compile_program(public, plan, batch=batch)
    found = Counter(program_operations(program.code, [entry.owner for entry in program.inputs]))
    assert Counter(o for _, part in operations(Graph.of(public, plan, None, batch)) for o in part) == found


@pytest.mark.parametrize("protocol", TOGETHER)
def test_only_an_images_own_products_add_operations(protocol: str) -> None:
    plan, known = plan_from_counts(SPEC, [2, 1], [3, 2]), ranges_for(SPEC)

    def counted(images: int) -> Counter[str]:
        graph = Graph(SPEC, plan, ranges=known, guard=True, batch=batch_for(protocol, images))
        return Counter(operation.name for _, part in operations(graph) for operation in part)

    one, eight = counted(1), counted(8)
    assert (eight - one).keys() == ({"matmul"} if protocol == "cheetah" else set())
    assert not one - eight


def test_images_share_products_of_their_own_in_groups() -> None:
    assert Batch(8, 3).groups == (3, 3, 2)
    assert Batch(4, 1).groups == (1, 1, 1, 1)
    assert batch_for("aby3", 3) == Batch(3, 3)


@pytest.mark.parametrize("images", [0, -1, MOST_IMAGES + 1])
def test_no_batch_has_such_a_size(images: int) -> None:
    with pytest.raises(RequestError, match=f"a batch of {images} images") as caught:
        batch_for("cheetah", images)
    assert str(MOST_IMAGES) in caught.value.hint
