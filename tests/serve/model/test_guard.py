"""The guard's bit, in the clear and in the engine: a value pushed out at any place is seen."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from graphs import SEMI2K, image_of, mixed_plan, public_of, simulate, small_spec, weights_of, with_ranges

from privit.artifact import Artifact, Public
from privit.plan import uniform_plan
from privit.program.graph import Graph
from privit.program.guard import all_watches
from privit.serve.compile.compile import (
    Input,
    Program,
    client_values,
    compile_program,
    program_of,
    server_values,
)
from privit.serve.engine.protocols import protocol
from privit.serve.engine.reference import MOST_AT_ONCE, Reference, reference_answers
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.bench import measure
from privit.serve.model.guard import Guard, answer, inside

SPEC = small_spec()
PLAN = mixed_plan(SPEC)
WEIGHTS = weights_of(SPEC, PLAN)


def guarded_public() -> Public:
    return replace(with_ranges(public_of(SPEC), PLAN, WEIGHTS), guard=True)


PUBLIC = guarded_public()
VALUES = server_values(PUBLIC, PLAN, WEIGHTS)
WATCHES = all_watches(Graph.of(PUBLIC, PLAN))


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_program(PUBLIC, PLAN)


@pytest.fixture(scope="module")
def reference(program: Program) -> Reference:
    return Reference(program, VALUES)


@pytest.mark.parametrize("end", ["low", "high"])
@pytest.mark.parametrize("watch", WATCHES, ids=lambda watch: watch.name)
def test_one_value_beyond_a_bound_at_any_place_is_seen(watch, end) -> None:  # type: ignore[no-untyped-def]
    bound = getattr(watch, end)
    if bound is None:
        pytest.skip("this end cannot be broken")
    beyond = bound - 0.01 if end == "low" else bound + 0.01

    def bit(moved: float) -> float:
        guard = Guard(Graph.of(PUBLIC, PLAN))
        for one in WATCHES:
            good = one.low if one.low is not None else one.high
            value = np.full(one.values, good, np.float32)
            if one is watch:
                value[-1] = moved
            guard(one.name, value)
        return float(inside(guard.slack)[0])

    assert bit(bound) == 1.0
    assert bit(beyond) == 0.0


def test_every_watched_place_is_met_and_none_is_watched_in_vain() -> None:
    met: dict[str, int] = {}

    def note(name: str, value: jax.Array) -> None:
        met[name] = met.get(name, 0) + value.size

    answer(Graph.of(PUBLIC, PLAN), VALUES | client_values(PUBLIC, image_of(SPEC)), note)
    assert {watch.name: watch.values for watch in WATCHES} == {w.name: met[w.name] for w in WATCHES}


@pytest.mark.parametrize("factor", [1.0, 3.0, 30.0, 1e4])
def test_what_wraps_is_flagged_and_what_is_in_range_is_right(reference: Reference, factor: float) -> None:
    given = client_values(PUBLIC, (image_of(SPEC) * factor).astype(np.float32))
    found = reference.run(given)
    expected = np.asarray(answer(Graph.of(PUBLIC, PLAN), VALUES | given))
    if factor == 1.0:
        assert found[-1] == 1.0
        assert np.abs(found - expected).max() < 0.01
    else:
        assert found[-1] == 0.0
        assert np.abs(found[:-1]).max() > 1000, "the answer should have been nonsense for this test to tell"


@pytest.mark.parametrize("name", ["semi2k-benchmark", "aby3", "cheetah"])
def test_the_reference_arithmetic_equals_every_protocol(
    program: Program, reference: Reference, name: str
) -> None:
    for factor in (1.0, 30.0):
        given = client_values(PUBLIC, (image_of(SPEC) * factor).astype(np.float32))
        found, expected = simulate(program, protocol(name), VALUES, given).logits, reference.run(given)
        assert found[-1] == expected[-1] == (factor == 1.0)
        if factor == 1.0:
            assert np.abs(found - expected).max() < 0.005


@pytest.mark.parametrize(("name", "most"), [("semi2k-benchmark", 40), ("aby3", 40), ("cheetah", 80)])
def test_the_guard_takes_few_rounds(name: str, most: int) -> None:
    measured = dict(measure(PUBLIC, PLAN, WEIGHTS, image_of(SPEC), protocol(name)).segments)
    assert measured["guard"].rounds <= most


@pytest.mark.parametrize("images", [1, 3])
def test_an_odd_number_of_comparisons_takes_the_rounds_of_an_even_one(images: int) -> None:
    def rounds_of(comparisons: int) -> int:
        inputs = (Input("slack", (comparisons * images,), "client"),)
        program = program_of(lambda values: inside(values["slack"], images), inputs)
        slack = np.ones((comparisons, images), np.float32)
        slack[-1, 0] = -1.0
        with Simulator(SEMI2K) as simulator:
            simulator.give(inputs, {"slack": slack.reshape(-1)})
            rounds = simulator.run(program.executable).rounds
            assert simulator.open(program.output).tolist() == [0.0] + [1.0] * (images - 1)
        return rounds

    assert rounds_of(1) == rounds_of(2)
    assert rounds_of(7) == rounds_of(8)


def test_segments_give_the_answer_of_the_whole_program() -> None:
    measured = measure(PUBLIC, PLAN, WEIGHTS, image_of(SPEC), SEMI2K)
    assert measured.logits.shape == (SPEC.classes + 1,)
    assert measured.logits[-1] == 1.0
    assert np.abs(measured.logits - measured.clear).max() < 0.01


def test_a_plan_of_squares_is_watched_by_its_row_sums() -> None:
    plan = uniform_plan(SPEC, "quadratic", "quadratic_attn")
    names = {watch.name for watch in all_watches(Graph.of(replace(public_of(SPEC), guard=True), plan))}
    assert {"guard.blocks.0.squares", "guard.blocks.0.squared", "guard.norm"} <= names


def test_images_that_share_a_run_get_the_answers_that_they_get_alone(reference: Reference) -> None:
    levels = np.linspace(0.9, 1.05, MOST_AT_ONCE + 3)
    levels[::5] = 30.0
    images = (image_of(SPEC) * levels[:, None, None, None]).astype(np.float32)
    alone = np.stack([reference.run(client_values(PUBLIC, image)) for image in images])
    together = reference_answers(Artifact(PUBLIC, PLAN, WEIGHTS), images)
    bits = together[:, -1] < 0.5
    np.testing.assert_array_equal(bits, alone[:, -1] < 0.5)
    assert bits.any()
    assert not bits.all()
    np.testing.assert_allclose(together[~bits], alone[~bits], atol=1e-3)
