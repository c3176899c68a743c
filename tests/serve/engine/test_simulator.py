from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import SEMI2K, clear, image_of, mixed_plan, public_of, simulate, small_spec, weights_of

from privit.errors import WorkError
from privit.serve.compile.compile import Input, client_values, compile_program, program_of, server_values
from privit.serve.engine.protocols import Protocol, protocol
from privit.serve.engine.simulator import Simulator

SPEC = small_spec()
PLAN = mixed_plan(SPEC)
PUBLIC = public_of(SPEC)
WEIGHTS = weights_of(SPEC, PLAN)


def test_simulated_logits_are_those_in_the_clear_and_both_ranks_are_counted() -> None:
    program = compile_program(PUBLIC, PLAN)
    given = client_values(PUBLIC, image_of(SPEC))
    found = simulate(program, SEMI2K, server_values(PUBLIC, PLAN, WEIGHTS), given)
    assert np.abs(found.logits - clear(PUBLIC, PLAN, WEIGHTS)).max() < 0.02
    assert len(found.counts.ranks) == 2
    assert all(rank.sent_bytes > 0 for rank in found.counts.ranks)
    assert sum(traffic.sent_bytes for traffic in found.counts.operations.values()) == found.counts.sent_bytes


def _two_queries(name: str, size: int = 8) -> tuple[Simulator, list, np.ndarray]:
    shape = (size, size)
    inputs = (Input("w", shape, "server"), Input("x", shape, "client"))
    program = program_of(lambda values: (values["x"] @ values["w"]) ** 2, inputs)
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    with Simulator(protocol(name), parallel=False) as simulator:
        simulator.give(inputs, {"w": w})
        counts = []
        for _ in range(2):
            simulator.give(inputs, {"x": x})
            counts.append(simulator.run(program.executable))
        return simulator, counts, simulator.open(program.output) - (x @ w) ** 2


@pytest.mark.parametrize(("name", "parties"), [("cheetah", 2), ("aby3", 3), ("semi2k-benchmark", 2)])
def test_set_up_is_paid_before_the_first_query_and_only_once(name: str, parties: int) -> None:
    simulator, (first, second), error = _two_queries(name)
    assert np.abs(error).max() < 5e-3
    assert len(first.ranks) == parties
    assert simulator.setup.sent_bytes > 0
    # ABY3 varies by a tenth between runs; the others repeat.
    assert second.sent_bytes == pytest.approx(first.sent_bytes, rel=0.1)
    assert second.rounds == pytest.approx(first.rounds, rel=0.1)
    if name == "cheetah":
        assert simulator.setup.sent_bytes > 5 * first.sent_bytes


def _product_bytes(entry: Protocol) -> int:
    shape = (16, 16)
    inputs = (Input("w", shape, "server"), Input("x", shape, "client"))
    program = program_of(lambda values: values["x"] @ values["w"], inputs)
    with Simulator(entry, parallel=False) as simulator:
        simulator.give(inputs, {"w": np.ones(shape), "x": np.ones(shape)})
        return simulator.run(program.executable).sent_bytes


def test_owner_typed_inputs_send_less_on_cheetah() -> None:
    cheetah = protocol("cheetah")
    assert _product_bytes(cheetah) < 0.8 * _product_bytes(replace(cheetah, owner_typed=False))


def test_a_missing_input_ends_in_an_error_that_names_the_log_and_no_stack() -> None:
    inputs = (Input("w", (2, 2), "server"), Input("x", (2, 2), "client"))
    program = program_of(lambda values: values["x"] @ values["w"], inputs)
    with Simulator(SEMI2K) as simulator:
        simulator.give(inputs, {"w": np.ones((2, 2))})
        with pytest.raises(WorkError, match="the engine stopped") as error:
            simulator.run(program.executable)
    assert "\n" not in error.value.message
