"""Wires, lanes and the folding of public bits."""

from __future__ import annotations

import numpy as np
import pytest

from privit.cost.gates.circuits.gates import Plain, constant, from_wires, lane_count, lanes, to_wires

BITS = (False, True)


@pytest.mark.parametrize("a", BITS)
@pytest.mark.parametrize("b", BITS)
def test_gates_give_their_truth_tables_on_secret_and_on_public_bits(a: bool, b: bool) -> None:
    gates = Plain()
    for x in (int(a), np.array([[a]])):
        for y in (int(b), np.array([[b]])):
            assert bool(gates.xor(x, y)) == a ^ b
            assert bool(gates.and_(x, y)) == (a & b)
            assert bool(gates.or_(x, y)) == (a | b)
            assert bool(gates.not_(x)) != a


def test_public_bits_cost_no_gate() -> None:
    gates, wire = Plain(), np.array([[True]])
    for public in (0, 1):
        gates.and_(wire, public)
        gates.and_(public, 1)
    assert gates.and_(wire, wire) is wire
    assert gates.xor(wire, wire) == 0
    assert gates.ands == 0


def test_a_gate_costs_one_and_per_lane_and_nothing_per_run_of_the_batch() -> None:
    gates = Plain()
    many, single = np.ones((50, 7), bool), np.ones((50, 1), bool)
    gates.and_(many, single)
    assert gates.ands == 7


def test_numbers_survive_the_way_onto_wires_and_back() -> None:
    values = np.random.default_rng(0).integers(-(2**31), 2**31, (100, 3))
    assert np.array_equal(from_wires(to_wires(values, 32), signed=True), values)
    assert np.array_equal(from_wires(to_wires(values, 32)), values % 2**32)


def test_public_numbers_mix_with_wires() -> None:
    assert from_wires(constant(-3, 8), signed=True).item() == -3
    value = [*to_wires(np.array([[1, 2, 3]]), 2), 1]
    assert from_wires(lanes(value, slice(1, 3))).tolist() == [[6, 7]]
    assert lane_count(value) == 3
    assert lane_count(constant(5, 4)) == 1
