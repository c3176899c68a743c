"""The listing of a program's costly operations."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import mixed_plan, public_of, small_spec, weights_of

from privit.artifact import Artifact, save_artifact
from privit.errors import RequestError
from privit.plan import uniform_plan
from privit.serve.compile.costly import describe_program
from privit.serve.engine.engine import Engine
from privit.spec import vit_spec


def operations(plan: str) -> dict[str, set[str]]:
    spec = small_spec()
    plans = {"mixed": mixed_plan(spec), "polynomial": uniform_plan(spec, "quadratic", "quadratic_attn")}
    found = describe_program(Artifact(public_of(spec), plans[plan]))
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


def test_the_hash_is_that_of_the_program_that_a_party_runs(tmp_path: Path) -> None:
    spec = small_spec()
    public, plan = public_of(spec), mixed_plan(spec)
    save_artifact(tmp_path / "out", public, plan, weights_of(spec, plan))
    shown = describe_program(tmp_path / "out" / "client")
    served = Engine(tmp_path / "out" / "server", "cheetah", "server", tmp_path / "engine.log")
    assert shown["code_hash"] in served.description().values()
    other = describe_program(Artifact(public, uniform_plan(spec)))
    assert other["code_hash"] not in served.description().values()
    assert shown["client_values"] == spec.patches * spec.patch_values


def test_products_are_listed_as_the_protocol_cuts_them() -> None:
    spec = vit_spec(56, 8, 192, 2, 3, classes=3)
    artifact = Artifact(public_of(spec), uniform_plan(spec))

    def sizes(protocol: str) -> set[tuple[int, ...]]:
        layers = describe_program(artifact, protocol)["layers"]
        return {tuple(row["sizes"]) for layer in layers for row in layer["operations"]}

    assert (50, 192, 768) in sizes("aby3") - sizes("cheetah")
    assert {(8, 192, 768), (42, 192, 768)} <= sizes("cheetah") - sizes("aby3")
    with pytest.raises(RequestError, match="semi3k"):
        describe_program(artifact, "semi3k")
