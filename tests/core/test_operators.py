"""The operator table is the one list of what can stand at a site."""

from __future__ import annotations

import pytest

from privit.errors import RequestError
from privit.operators import BY_ID, BY_NAME, DEGREES, TABLE, Operator, operator, parameter_shapes
from privit.spec import KINDS, Granularity, Spec


def test_names_and_ids_are_unique_and_fit_a_byte() -> None:
    assert len(BY_ID) == len(BY_NAME) == len(TABLE)
    assert all(0 <= entry.id < 256 for entry in TABLE)


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_every_entry_has_a_kind_a_formula_and_a_start_for_each_parameter(entry: Operator) -> None:
    assert entry.kind in KINDS
    assert entry.formula
    assert entry.parameters.keys() == entry.initial.keys()


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_every_entry_says_what_its_family_needs(entry: Operator) -> None:
    of_kind = {"gelu": {"pointwise", "square", "linear"}, "softmax": {"normalised", "static", *DEGREES}}
    of_kind |= {"norm": {"normalised", "reused", "linear", "constant"}}
    assert entry.family in of_kind[entry.kind]
    if entry.family in DEGREES:
        assert not entry.exact
        assert (len(entry.parameters), len(entry.coefficients)) in {
            (DEGREES[entry.family] + 1, 0),
            (0, DEGREES[entry.family] + 1),
        }
    if entry.kind == "softmax":
        # The first coefficient is folded into q, and nothing else of a public polynomial has a place.
        assert not any(entry.coefficients[1:])
        assert all(first > 0 for first in entry.coefficients[:1])


def test_the_parameters_of_a_polynomial_are_named_from_the_highest_power_down() -> None:
    assert operator("quadratic_attn").powers == {"c2": 2, "c1": 1, "c0": 0}
    assert operator("affine").powers == {"a": 1, "b": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_exact_operators_and_stand_ins(kind: str) -> None:
    assert {entry.exact for entry in TABLE if entry.kind == kind} == {True, False}


def test_parameters_have_one_value_per_channel_or_head(tiny_spec: Spec) -> None:
    assert parameter_shapes(tiny_spec, 1, operator("affine")) == {
        "blocks.1.gelu.affine.a": (32,),
        "blocks.1.gelu.affine.b": (32,),
    }
    assert set(parameter_shapes(tiny_spec, 0, operator("quadratic_attn")).values()) == {(2,)}
    assert parameter_shapes(tiny_spec, 0, operator("identity")) == {}


def test_parameters_at_layer_norms_have_one_value_per_site(tiny_spec: Spec) -> None:
    assert parameter_shapes(tiny_spec, 0, operator("reused_norm")) == {"blocks.0.norm.reused_norm.s": (2,)}
    classes = Granularity(norm="class")
    last = parameter_shapes(tiny_spec, tiny_spec.depth - 1, operator("linear_norm"), classes)
    assert {name.rpartition(".")[2]: shape for name, shape in last.items()} == {"b": (3, 2), "a": (3, 2)}


def test_ids_of_norms_are_what_plans_on_disk_say() -> None:
    norms = {entry.name: entry.id for entry in TABLE if entry.kind == "norm"}
    assert norms == {"layer_norm": 32, "reused_norm": 33, "linear_norm": 34, "fixed_norm": 35}


def test_an_unknown_operator_is_refused_with_the_known_names() -> None:
    with pytest.raises(RequestError, match="no operator is called 'swish'") as caught:
        operator("swish")
    assert "squared_attn" in caught.value.hint


def test_an_operator_of_the_other_kind_is_refused() -> None:
    with pytest.raises(RequestError, match="no gelu operator is called 'softmax'"):
        operator("softmax", "gelu")
