"""What a session warms up: both streams of transfers only where the program will use them."""

from __future__ import annotations

import pytest
from graphs import public_of

from privit.plan import plan_from_counts
from privit.program.choices import Batch
from privit.program.graph import Graph
from privit.program.operation import Operation
from privit.serve.engine.warming import MANY, runs_parallel, warm_up_program
from privit.spec import vit_spec


@pytest.mark.parametrize(
    ("image_size", "width", "kept_gelus", "images", "parallel"),
    [
        (8, 8, 1, 1, False),  # 5 tokens of width 8
        (8, 8, 1, 64, True),  # as many rows as a larger model has
        (16, 64, 17, 1, True),  # 17 tokens of 256 hidden values
    ],
)
def test_the_second_stream_is_for_programs_of_many_values_at_once(
    image_size: int, width: int, kept_gelus: int, images: int, parallel: bool
) -> None:
    spec = vit_spec(image_size, 4, width, 2, 2, 10, channels=1)
    graph = Graph.of(public_of(spec), plan_from_counts(spec, [kept_gelus, 0], [1, 1]), None, Batch(images))
    assert runs_parallel(graph) is parallel


def test_a_products_inner_size_is_no_result() -> None:
    assert Operation("matmul_weight", (5, 700, 3)).results == (5, 3)
    assert Operation("max", (5, 7)).results == (5, 7)
    assert Operation("square", (9,)).results == (9,)


def test_the_shorter_warm_up_compares_fewer_values() -> None:
    assert f"tensor<{MANY}" in warm_up_program().code
    assert f"tensor<{MANY}" not in warm_up_program(parallel=False).code
