"""Every function between shares keeps its stated error bound, in every setting."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.circuits import gelu_tanh

from privit.cost.gates.circuits import fixed
from privit.cost.gates.circuits.fixed import FixedFormat
from privit.cost.gates.circuits.functions import (
    FUNCTIONS,
    SETTINGS,
    Setting,
    count,
    evaluate_masked,
    function,
    gelu_erf,
    setting,
)
from privit.cost.gates.circuits.gates import Plain
from privit.cost.gates.circuits.shares import RECOVERIES
from privit.errors import RequestError

INPUTS = 10_000
SHORT = 8  # lanes of a vector where the number of inputs matters more than their length


def largest_error(name: str, where: Setting, values: np.ndarray) -> tuple[float, float]:
    """The largest error as a share of what is allowed, and the largest in units of the last place.

    Fixed point may be `fixed_bound` units off. float32 may be `float_bound` off relative to
    max(1, |result|), and one unit more because the way back to shares rounds toward zero.
    """
    entry = function(name)
    result, _ = evaluate_masked(entry, where, values, np.random.default_rng(1))
    x = where.form.round(values) * where.unit
    on_float = where.number == "float32" and name != "relu"
    expected = gelu_tanh(x) if on_float and name == "gelu" else entry.reference(x)
    error = np.abs(result - expected)
    if on_float:
        allowed = where.unit + entry.float_bound * np.maximum(1, np.abs(expected))
    else:
        allowed = np.full_like(expected, entry.fixed_bound * where.unit)
    # An exact function has no allowance; rounding of the float64 reference is then the only excuse.
    return float((error / (allowed + 1e-12)).max()), float(error.max() / where.unit)


@pytest.mark.parametrize("where", SETTINGS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ten_thousand_inputs_stay_within_the_bound(name: str, where: str) -> None:
    length = SHORT if FUNCTIONS[name].vector else 1
    values = FUNCTIONS[name].sample(np.random.default_rng(0), (INPUTS, length))
    share, units = largest_error(name, SETTINGS[where], values)
    assert share <= 1, f"{units:.2f} units off"


@pytest.mark.parametrize("where", ["fixed32-ring32", "float32-prime31"])
@pytest.mark.parametrize(("name", "length"), [("softmax", 197), ("relu_softmax", 257), ("layer_norm", 192)])
def test_vectors_as_long_as_a_models_stay_within_the_bound(name: str, length: int, where: str) -> None:
    values = FUNCTIONS[name].sample(np.random.default_rng(0), (200, length))
    share, units = largest_error(name, SETTINGS[where], values)
    assert share <= 1, f"{units:.2f} units off"


@pytest.mark.parametrize("length", [17, 197, 1024])
@pytest.mark.parametrize("name", ["softmax", "relu_softmax", "two_quad", "layer_norm"])
def test_the_bound_holds_where_one_lane_outweighs_the_others(name: str, length: int) -> None:
    # Equal small lanes round alike, and their errors add up instead of cancelling.
    rng = np.random.default_rng(0)
    values = np.tile(rng.uniform(-0.5, 0.5, (200, 1)), (1, length)) + rng.normal(0, 0.01, (200, length))
    values[:, 0] += rng.uniform(3, 12, 200)
    share, units = largest_error(name, SETTINGS["fixed32-ring32"], values)
    assert share <= 1, f"{units:.2f} units off"


@pytest.mark.parametrize(("width", "fraction"), [(24, 8), (32, 16), (40, 14)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_fixed_point_works_at_any_width_and_fraction(name: str, width: int, fraction: int) -> None:
    form, entry = FixedFormat(width, fraction), FUNCTIONS[name]
    values = entry.sample(np.random.default_rng(0), (500, SHORT if entry.vector else 1))
    values = np.clip(values, -(2.0**7), 2.0**7)  # squares of it fit the narrowest format
    result = form.decode(entry.fixed(Plain(), form, form.encode(values)))
    expected = entry.reference(form.round(values) * form.unit)
    assert np.abs(result - expected).max() <= entry.fixed_bound * form.unit + 1e-12


def test_gelu_is_exact_enough_where_it_saturates() -> None:
    values = np.array([[-1000.0, -8.0, -4.0, -3.99, 0.0, 3.99, 4.0, 8.0, 1000.0]]).T
    for where in SETTINGS.values():
        result, _ = evaluate_masked(FUNCTIONS["gelu"], where, values, np.random.default_rng(0))
        tolerance = 2 * where.unit + 4.8e-4  # the tanh form's distance from x Phi(x)
        assert np.abs(result - gelu_erf(values)).max() <= tolerance


def test_softmax_of_far_apart_scores_is_zero_and_one() -> None:
    values = np.array([[300.0, -300.0, 0.0, 290.0]])
    for where in SETTINGS.values():
        result, _ = evaluate_masked(FUNCTIONS["softmax"], where, values, np.random.default_rng(0))
        assert result[0] == pytest.approx([1, 0, 0, 0], abs=2 * where.unit)


def test_a_row_without_positive_scores_has_a_relu_softmax_of_zero() -> None:
    for where in SETTINGS.values():
        result, _ = evaluate_masked(
            FUNCTIONS["relu_softmax"], where, -np.ones((1, 5)), np.random.default_rng(0)
        )
        assert not result.any()


def test_a_constant_row_has_a_layer_norm_of_zero() -> None:
    for where in SETTINGS.values():
        result, _ = evaluate_masked(
            FUNCTIONS["layer_norm"], where, np.full((1, 8), 2.5), np.random.default_rng(0)
        )
        assert not result.any()


@pytest.mark.parametrize(("where", "ands"), [("fixed31-prime31", 214), ("fixed32-ring32", 93)])
def test_relu_with_recovery_and_masking_costs_what_is_published(where: str, ands: int) -> None:
    assert count("relu", where).ands == ands


def test_counts_do_not_depend_on_the_values() -> None:
    rng = np.random.default_rng(0)
    for name, entry in FUNCTIONS.items():
        length = SHORT if entry.vector else 1
        _, gates = evaluate_masked(entry, SETTINGS["fixed32-ring32"], entry.sample(rng, (3, length)), rng)
        assert gates.ands == count(name, "fixed32-ring32", length).ands


def test_what_fixed_point_cannot_hold_is_refused() -> None:
    form = FixedFormat(16, 8)
    for value, words in ((np.inf, "infinity or NaN"), (np.nan, "infinity or NaN"), (128.0, "end at 128")):
        with pytest.raises(RequestError, match=words):
            form.encode(np.array([[value]]))
    with pytest.raises(RequestError, match="not a usable"):
        FixedFormat(8, 8)
    wide = FixedFormat(40, 24)
    zero = wide.encode(np.zeros((1, 1)))
    with pytest.raises(RequestError, match="at most 16 bits"):
        fixed.gelu(Plain(), wide, zero)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="known: relu"):
        function("sine")
    with pytest.raises(RequestError, match="fixed32-ring32"):
        setting("fixed7")


def test_settings_are_named_by_number_and_recovery() -> None:
    assert Setting("float32", RECOVERIES["prime31"]).name == "float32-prime31"
    assert all(setting(name).name == name for name in SETTINGS)
