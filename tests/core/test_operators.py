"""The operator table is the one list of what can stand at a site."""

from __future__ import annotations

import pytest

from privit.errors import RequestError
from privit.operators import BY_ID, BY_NAME, TABLE, Operator, operator, parameter_shapes
from privit.spec import KINDS, Spec


def test_names_and_ids_are_unique_and_fit_a_byte() -> None:
    assert len(BY_ID) == len(BY_NAME) == len(TABLE)
    assert all(0 <= entry.id < 256 for entry in TABLE)


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_every_entry_has_a_kind_a_formula_and_a_start_for_each_parameter(entry: Operator) -> None:
    assert entry.kind in KINDS
    assert entry.formula
    assert entry.parameters.keys() == entry.initial.keys()


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


def test_an_unknown_operator_is_refused_with_the_known_names() -> None:
    with pytest.raises(RequestError, match="no operator is called 'swish'") as caught:
        operator("swish")
    assert "squared_attn" in caught.value.hint


def test_an_operator_of_the_other_kind_is_refused() -> None:
    with pytest.raises(RequestError, match="no gelu operator is called 'softmax'"):
        operator("softmax", "gelu")
