"""The listing of a program's costly operations."""

from __future__ import annotations

from graphs import mixed_plan, public_of, small_spec

from privit.artifact import Artifact
from privit.plan import uniform_plan
from privit.serve.engine.costly import describe_program


def operations(plan: str) -> dict[str, set[str]]:
    spec = small_spec()
    plans = {"mixed": mixed_plan(spec), "polynomial": uniform_plan(spec, "quadratic", "quadratic_attn")}
    found = describe_program(Artifact(public_of(spec), plans[plan]), "semi2k-benchmark")
    return {layer["name"]: {row["operation"] for row in layer["operations"]} for layer in found["layers"]}


def test_every_layer_lists_what_its_plan_keeps() -> None:
    found = operations("mixed")
    assert list(found) == ["embedding", "layer 0", "layer 1", "head"]
    assert {"exp", "reciprocal", "rsqrt", "matmul"} <= found["layer 0"]
    assert not {"exp", "reciprocal"} & (found["embedding"] | found["head"])


def test_a_polynomial_program_lists_squares_and_no_exponential() -> None:
    found = operations("polynomial")
    assert "square" in found["layer 0"]
    assert not {"exp", "reciprocal", "compare", "max"} & set().union(*found.values())


def test_the_hash_is_that_of_the_served_program() -> None:
    spec = small_spec()
    subject = Artifact(public_of(spec), mixed_plan(spec))
    first, second = (describe_program(subject, "cheetah") for _ in range(2))
    assert first["code_hash"] == second["code_hash"]
    assert first["client_values"] == spec.patches * spec.patch_values
