"""How rows of a product of ciphertexts are cut; a program with such cuts is listed and answers as before."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest
from programs import drawn_plan, public_of

from privit.program.choices import ONE, Batch, batch_for
from privit.program.graph import Graph
from privit.program.operations import operations
from privit.program.tiles import matmul_tiles, row_pieces
from privit.serve.compile.compile import client_values, compile_program, server_values
from privit.serve.compile.listing import program_operations
from privit.serve.measure.bench import random_images, random_weights
from privit.serve.model.forward import forward
from privit.spec import Granularity, vit_spec

WIDE = vit_spec(56, 8, 192, 2, 3, classes=3)


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ((50, 192, 576), (25, 25)),
        ((50, 192, 768), (8, 42)),
        ((50, 768, 192), (50,)),
        ((197, 192, 576), (197,)),
        ((17, 64, 256), (17,)),
        ((1, 192, 10), (1,)),
    ],
)
def test_rows_are_cut_where_that_saves_time(sizes: tuple[int, int, int], pieces: tuple[int, ...]) -> None:
    assert row_pieces(*sizes) == pieces


@pytest.mark.parametrize("columns", [192, 576, 768])
def test_a_cut_packs_fewer_blocks_for_few_more_ciphertexts(columns: int) -> None:
    whole, cut = matmul_tiles(50, 192, columns), [matmul_tiles(rows, 192, columns) for rows in (8, 42)]
    assert sum(part.blocks for part in cut) <= 0.55 * whole.blocks
    assert sum(part.requests + part.responses for part in cut) <= whole.requests + whole.responses + 3


def test_only_products_of_ciphertexts_are_cut() -> None:
    assert Batch().pieces(50, 192, 768) == batch_for("aby3", 1).pieces(50, 192, 768) == (50,)
    assert batch_for("cheetah", 1).pieces(50, 192, 768) == (8, 42)
    assert batch_for("cheetah", 1).pieces(0, 192, 768) == (0,)


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_program_that_cuts_is_listed_and_answers_as_one_that_does_not(seed: int, images: int) -> None:
    plan, public = drawn_plan(WIDE, Granularity(), seed), public_of(WIDE)
    batch = batch_for("cheetah", images)
    program = compile_program(public, plan, batch=batch)
    found = Counter(program_operations(program.code, [entry.owner for entry in program.inputs]))
    listed = Counter(o for _, part in operations(Graph.of(public, plan, None, batch)) for o in part)
    assert listed == found
    kept = {o for _, part in operations(Graph.of(public, plan, None, Batch(images))) for o in part}
    assert any(o.name == "matmul_weight" and o not in kept for o in found)
    pixels = random_images(public, seed, images)
    values = server_values(public, plan, random_weights(public, plan, seed)) | client_values(public, pixels)
    answers = [
        np.asarray(jax.jit(lambda given, way=way: forward(Graph.of(public, plan, None, way), given))(values))
        for way in (batch, ONE if images == 1 else Batch(images))
    ]
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-4, atol=1e-4)
