"""Profiles: published constants, counted circuits, and no mixing of the two."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from privit.cost.gates.circuits.functions import SETTINGS, count
from privit.cost.gates.counts import LAYER_NORM
from privit.cost.gates.profiles import PAPER_CONSTANTS, counted_table, profile, profile_names
from privit.errors import RequestError
from privit.operators import TABLE

ALL = [*profile_names(), *(name + "-without-square" for name in profile_names())]


@pytest.mark.parametrize("name", ALL)
def test_every_operator_has_a_cost_in_every_profile(name: str) -> None:
    prices = profile(name)
    assert prices.name == name
    for entry in TABLE:
        length = {"gelu": 1, "softmax": 197, "norm": 192}[entry.kind]
        cost = prices.cost(entry.name, length)
        assert cost > 0 if entry.exact else cost >= 0
    assert prices.cost(LAYER_NORM, 192) > 0


@pytest.mark.parametrize("name", ALL)
def test_a_stand_in_never_costs_more_than_the_exact_operator(name: str) -> None:
    prices = profile(name)
    for gelu in ("identity", "affine"):
        assert prices.cost(gelu, 1) == 0
    for attention in ("squared_attn", "scale_attn", "uniform_attn"):
        assert prices.cost(attention, 197) < prices.cost("softmax", 197)
    for norm in ("reused_norm", "fixed_norm"):
        assert prices.cost(norm, 192) == 0
    squares = 0 if name.endswith("-without-square") else 192
    each = prices.cost("quadratic", 1) if squares else 0
    assert prices.cost("linear_norm", 192) == pytest.approx(squares * each)
    assert prices.cost("linear_norm", 192) < prices.cost(LAYER_NORM, 192)


def test_the_paper_profile_gives_the_published_constants_and_marks_what_it_derives() -> None:
    prices = profile("paper")
    for operator, points in PAPER_CONSTANTS.items():
        for length, constant in points.items():
            assert prices.cost(operator, length) == constant
            assert not prices.extrapolated(operator, length)
    assert prices.extrapolated("softmax", 50)
    assert prices.cost("softmax", 394) == 2 * 18586
    assert prices.extrapolated("two_quad", 197)
    assert not prices.extrapolated("identity", 1)
    assert prices.cost("relu_softmax", 161) == pytest.approx((1133 + 4428) / 2)


def test_leaving_squares_out_changes_squares_alone() -> None:
    for base in profile_names():
        prices, without = profile(base), profile(base + "-without-square")
        assert without.cost("squared_attn", 197) == 0 < prices.cost("squared_attn", 197)
        for operator, length in (("gelu", 1), ("softmax", 197), (LAYER_NORM, 192)):
            assert prices.cost(operator, length) == without.cost(operator, length)


def test_the_default_circuits_are_named_by_ring_and_width() -> None:
    assert profile("circuits").name == "circuits-fixed32-ring32"


def test_unknown_profiles_are_refused_with_the_known_ones() -> None:
    for name in ("papr", "circuits-fixed8-ring8", "fixed32-ring32"):
        with pytest.raises(RequestError, match="circuits-float32-prime31"):
            profile(name)


def test_the_shipped_table_is_what_the_circuits_count() -> None:
    table = counted_table()
    assert list(table) == list(SETTINGS)
    again = [
        ("relu", 1),
        ("square", 1),
        ("gelu", 1),
        ("softmax", 197),
        ("relu_softmax", 65),
        ("layer_norm", 192),
    ]
    for setting, (function, length) in itertools.product(SETTINGS, again):
        assert table[setting][function][str(length)] == count(function, setting, length).ands


def test_the_published_results_are_those_of_the_shipped_table() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "results" / "circuits.json"
    results = json.loads(page.read_text())
    assert all(found["within_bound"] for found in results["functions"].values())
    assert all(run["equal_to_plain"] and run["bytes_per_and"] == 32 for run in results["garbled"])
    for key, found in results["functions"].items():
        setting, function, length = re.fullmatch(r"(\S+) (\w+)\((\d+)\)", key).groups()  # type: ignore[union-attr]
        assert counted_table()[setting][function][length] == found["ands"]


def test_lengths_outside_the_table_are_counted_and_lie_between_their_neighbours() -> None:
    prices = profile("circuits")
    assert "100" not in counted_table()["fixed32-ring32"]["softmax"]
    assert prices.cost("softmax", 65) < prices.cost("softmax", 100) < prices.cost("softmax", 145)


def test_float32_costs_more_than_fixed_point_and_a_prime_more_than_a_ring() -> None:
    for operator, length in (("gelu", 1), ("softmax", 197), (LAYER_NORM, 192)):
        costs = {name: profile("circuits-" + name).cost(operator, length) for name in SETTINGS}
        assert costs["fixed32-ring32"] < costs["fixed31-prime31"] < costs["float32-ring32"]
        assert costs["float32-ring32"] < costs["float32-prime31"]
