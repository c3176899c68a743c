"""Several images in one program: each gets the answer, and the guard's bit, that it gets alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import image_of, mixed_plan, public_of, simulate, small_spec, weights_of, with_ranges

from privit.plan import Plan, uniform_plan
from privit.program.choices import Batch
from privit.program.graph import Graph
from privit.serve.compile.compile import client_values, compile_program, server_values
from privit.serve.engine.protocols import protocol
from privit.serve.measure.bench import measure
from privit.serve.model.guard import answer
from privit.serve.model.images import for_all, own_product, repeated, rows_of_all, sum_of_rows, transposed
from privit.spec import Spec

SPEC = small_spec()
PLAN = mixed_plan(SPEC)
WEIGHTS = weights_of(SPEC, PLAN)
PUBLIC = replace(with_ranges(public_of(SPEC), PLAN, WEIGHTS), guard=True)
VALUES = server_values(PUBLIC, PLAN, WEIGHTS)
OUTSIDE = 1
IMAGES = np.stack([image_of(SPEC) * np.float32(30.0 if i == OUTSIDE else 0.9 + i / 20) for i in range(3)])


def by_row(images: np.ndarray) -> np.ndarray:
    """Matrices (images, rows, columns) as the rows of all images next to each other."""
    return images.swapaxes(0, 1).reshape(-1, images.shape[2])


@pytest.mark.parametrize("batch", [Batch(5, 1), Batch(5, 5), Batch(5, 2), Batch(1, 1)])
def test_every_form_of_product_gives_each_image_its_own(batch: Batch) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(batch.images, 4, 3)), rng.normal(size=(batch.images, 3, 6))
    found = np.asarray(own_product(batch, by_row(left), by_row(right)))
    np.testing.assert_allclose(found, by_row(left @ right), atol=1e-5)


def test_rows_of_all_images_are_taken_summed_and_turned_image_by_image() -> None:
    x = np.random.default_rng(1).normal(size=(3, 4, 2))
    rows = by_row(x)
    np.testing.assert_array_equal(rows[rows_of_all(np.array([2, 0]), 3)], by_row(x[:, [2, 0]]))
    np.testing.assert_allclose(sum_of_rows(rows, 3), x.sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(transposed(rows, 3), by_row(x.swapaxes(1, 2)), atol=1e-6)
    np.testing.assert_allclose(for_all(x[0], 3), by_row(np.stack([x[0]] * 3)), atol=1e-6)
    np.testing.assert_allclose(repeated(x[:, 0], 4), by_row(np.repeat(x[:, :1], 4, axis=1)), atol=1e-6)


def alone(spec: Spec, plan: Plan, guard: bool) -> None:
    public = replace(public_of(spec), guard=guard)
    values = server_values(public, plan, weights_of(spec, plan))
    one = [np.asarray(answer(Graph.of(public, plan), values | client_values(public, i))) for i in IMAGES]
    for batch in (Batch(3, 1), Batch(3, 3)):
        graph = Graph.of(public, plan, None, batch)
        found = np.asarray(answer(graph, values | client_values(public, IMAGES)))
        np.testing.assert_allclose(found, np.stack(one), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_in_the_clear_a_batch_gives_what_each_image_gives_alone(pooling: str, guard: bool) -> None:
    spec = replace(SPEC, pooling=pooling)
    alone(spec, PLAN, guard)
    alone(spec, uniform_plan(spec, "quadratic", "linear_attn"), guard)


# Cheetah's form of products, which its own session runs in test_batches.py, is quicker on semi2k-benchmark.
@pytest.mark.parametrize(("name", "batch"), [("semi2k-benchmark", Batch(3, 1)), ("aby3", Batch(3, 3))])
def test_in_the_engine_each_image_has_its_own_answer_and_its_own_bit(name: str, batch: Batch) -> None:
    program = compile_program(PUBLIC, PLAN, batch=batch)
    found = simulate(program, protocol(name), VALUES, client_values(PUBLIC, IMAGES)).logits
    assert found.shape == (3, SPEC.classes + 1)
    assert found[:, -1].tolist() == [1.0, 0.0, 1.0]
    for index in (0, 2):
        expected = answer(Graph.of(PUBLIC, PLAN), VALUES | client_values(PUBLIC, IMAGES[index]))
        assert np.abs(found[index] - np.asarray(expected)).max() < 0.01


def test_segments_of_a_batch_give_the_answer_of_the_whole_program_in_the_rounds_of_one_image() -> None:
    semi2k = protocol("semi2k-benchmark")
    one, many = (measure(PUBLIC, PLAN, WEIGHTS, pixels, semi2k) for pixels in (IMAGES[0], IMAGES))
    assert many.logits[:, -1].tolist() == [1.0, 0.0, 1.0]
    assert np.abs(many.logits[0] - one.logits).max() < 0.01
    assert many.total.rounds == one.total.rounds
    assert many.total.sent_bytes < 3 * one.total.sent_bytes
