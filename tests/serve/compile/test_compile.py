from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import mixed_plan, public_of, small_spec, weights_of, with_ranges

from privit.plan import plan_from_ids, uniform_plan
from privit.serve.compile.compile import (
    Input,
    compile_program,
    compiler_options_text,
    program_from_bytes,
    program_of,
    program_to_bytes,
    server_values,
)
from privit.spec import Granularity

NONLINEAR = [
    "exponential",
    "tanh",
    "erf",
    "maximum",
    "minimum",
    "max",
    "less",
    "greater",
    "less_equal",
    "greater_equal",
    "equal",
    "not_equal",
    "select",
    "divide",
    "reciprocal",
    "power",
    "log",
    "logistic",
    "sqrt",
    "sort",
    "abs",
    "sign",
    "clamp",
    "while",
    "case",
]


def operations(code: str) -> set[str]:
    return set(re.findall(r"pphlo\.(\w+) ", code))


@pytest.mark.parametrize(
    ("gelu", "softmax"),
    [("identity", "squared_attn"), ("quadratic", "quadratic_attn"), ("affine", "linear_attn")],
)
def test_a_plan_without_exact_sites_leaves_only_products_and_the_rsqrt(gelu: str, softmax: str) -> None:
    program = compile_program(public_of(small_spec()), uniform_plan(small_spec(), gelu, softmax))
    found = operations(program.code)
    assert not found & set(NONLINEAR)
    assert "rsqrt" in found
    assert found & {"dot", "dot_general"}


def test_an_exact_plan_does_have_what_the_other_lacks() -> None:
    found = operations(compile_program(public_of(small_spec()), uniform_plan(small_spec())).code)
    assert {"exponential", "reciprocal", "less"} <= found


def test_a_fitted_gelu_is_one_square_more_than_the_identity() -> None:
    def products(gelu: str) -> int:
        plan = uniform_plan(small_spec(), gelu, "squared_attn")
        return compile_program(public_of(small_spec()), plan).code.count("pphlo.multiply")

    assert products("quadratic") == products("identity") + small_spec().depth


def test_the_program_is_the_same_in_another_process_with_another_hash_seed() -> None:
    spec = small_spec()
    ours = compile_program(public_of(spec), mixed_plan(spec)).code_hash
    text = (
        "from graphs import *; from privit.serve.compile.compile import compile_program; s = small_spec(); "
        "print(compile_program(public_of(s), mixed_plan(s)).code_hash)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": str(Path(__file__).parents[1])}
    theirs = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert theirs.stdout.strip() == ours
    assert theirs.stderr == ""


def test_the_program_follows_plan_and_public_ranges_and_no_weight() -> None:
    spec = small_spec()
    public, plan = public_of(spec), mixed_plan(spec)
    one = compile_program(public, plan)
    other = uniform_plan(spec, "identity", "squared_attn")
    assert compile_program(public, other).code_hash != one.code_hash
    ranged = with_ranges(public, plan, weights_of(spec, plan))
    assert compile_program(ranged, plan).code_hash != one.code_hash


def test_inputs_say_whose_they_are_and_match_the_folded_weights() -> None:
    spec = small_spec()
    plan = mixed_plan(spec)
    program = compile_program(public_of(spec), plan)
    values = server_values(public_of(spec), plan, weights_of(spec, plan))
    assert {e.name: e.shape for e in program.inputs if e.owner == "server"} == {
        name: value.shape for name, value in values.items()
    }
    assert [e.name for e in program.inputs if e.owner == "client"] == ["patches"]
    assert list(program.executable.input_names) == [e.name for e in program.inputs]


def test_sites_of_single_values_compile_without_a_loop_over_them() -> None:
    spec = small_spec()
    rng = np.random.default_rng(0)
    shape = (spec.tokens, spec.blocks[0].mlp_width)
    layers = {
        "gelu": [rng.choice([0, 1], shape) for _ in spec.blocks],
        "softmax": [np.full((2, spec.tokens), 17) for _ in spec.blocks],
    }
    code = compile_program(public_of(spec), plan_from_ids(Granularity(gelu="element"), layers)).code
    assert code.count("\n") < 1500


def test_compiler_options_are_listed_for_the_handshake() -> None:
    assert "disable_div_sqrt_rewrite=False" in compiler_options_text().splitlines()


def test_a_program_survives_the_way_to_another_process() -> None:
    pair = (Input("a", (2, 3), "client"), Input("b", (3, 4), "server"))
    program = program_of(lambda values: values["a"] @ values["b"], pair)
    found = program_from_bytes(program_to_bytes(program))
    assert (found.code, found.code_hash, found.inputs, found.output) == (
        program.code,
        program.code_hash,
        program.inputs,
        program.output,
    )
    made, again = program.executable, found.executable
    for name in ("name", "input_names", "output_names", "code"):
        assert getattr(made, name) == getattr(again, name)
