"""The text that the engine reads in every query: shorter than what was compiled, and the same program."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import mixed_plan, public_of, small_spec, weights_of

from privit.serve.compile import shorten
from privit.serve.compile.compile import (
    OUTPUT,
    Program,
    client_values,
    compile_program,
    server_values,
)
from privit.serve.compile.shorten import shortened
from privit.serve.engine.protocols import protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.bench import random_image

TEXT = """module @m {
  func.func @main(%arg0: tensor<4x8x!pphlo.secret<f32>>) -> tensor<4x8x!pphlo.secret<f32>> {
    %0 = pphlo.multiply %arg0, %arg0 : tensor<4x8x!pphlo.secret<f32>>
    %1 = pphlo.slice %0 [0:1:1, 0:1:8] : (tensor<4x8x!pphlo.secret<f32>>) -> tensor<1x8x!pphlo.secret<f32>>
    pphlo.free %0 : tensor<4x8x!pphlo.secret<f32>>
    pphlo.free %1 : tensor<1x8x!pphlo.secret<f32>>
      pphlo.free %2 : tensor<f32>
"""


def test_every_type_is_written_once() -> None:
    text = shortened(TEXT)
    assert text.count("tensor<4x8x!pphlo.secret<f32>>") == 1
    assert text.startswith("!t0 = tensor<4x8x!pphlo.secret<f32>>\n")


def test_small_values_wait_for_the_end_of_a_run_but_those_of_a_region() -> None:
    assert shortened(TEXT).count("pphlo.free") == 1


def test_a_view_is_freed_with_what_it_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorten, "KEPT_BYTES", 16 * 8)  # enough for the view alone
    assert shortened(TEXT).count("pphlo.free") == 3


@pytest.fixture(scope="module")
def program() -> Program:
    spec = small_spec()
    return compile_program(public_of(spec), mixed_plan(spec))


def test_the_engine_gets_less_to_read_and_the_hash_is_of_what_was_compiled(program: Program) -> None:
    assert bytes(program.executable.code).decode() == shortened(program.code)
    assert len(program.executable.code) < 0.6 * len(program.code)
    assert "!t0" not in program.code


def test_the_shorter_text_answers_as_the_compiled_one_at_the_same_cost(program: Program) -> None:
    spec = small_spec()
    public, plan = public_of(spec), mixed_plan(spec)
    values = server_values(public, plan, weights_of(spec, plan)) | client_values(
        public, random_image(public, 0)
    )
    answers, costs = [], []
    for code in (program.code.encode(), bytes(program.executable.code)):
        program.executable.code = code
        with Simulator(protocol("semi2k-benchmark")) as simulator:
            simulator.give(program.inputs, values)
            counts = simulator.run(program.executable)
            costs.append((counts.sent_bytes, counts.rounds))
            answers.append(simulator.open(OUTPUT))
    assert costs[0] == costs[1]
    np.testing.assert_allclose(answers[0], answers[1], atol=0.05)
