"""Integer circuits are bit-exact, at a known number of ANDs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.circuits import multiply_low
from hypothesis import given, settings
from hypothesis import strategies as st

from privit.cost.gates.circuits import integer
from privit.cost.gates.circuits.gates import Bits, Plain, constant, from_wires, to_wires

INPUTS = 10_000


def inputs(width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers of every magnitude, and the corners."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 1 << width, (INPUTS, 1)) >> rng.integers(0, width, (INPUTS, 1)) for _ in "ab")
    corners = np.array([0, 1, 2, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1])
    pairs = np.stack(np.meshgrid(corners, corners), axis=-1).reshape(-1, 2)
    return np.vstack([a, pairs[:, :1]]), np.vstack([b, pairs[:, 1:]])


def result(circuit: Callable[..., Bits], *operands: Bits, signed: bool = False) -> np.ndarray:
    return from_wires(circuit(Plain(), *operands), signed)


@pytest.mark.parametrize("width", [4, 16, 24, 32])
def test_sums_and_products_equal_those_of_numpy(width: int) -> None:
    a, b = inputs(width)
    x, y = to_wires(a, width), to_wires(b, width)
    u, v, mask = a.astype(np.uint64), b.astype(np.uint64), np.uint64((1 << width) - 1)
    assert np.array_equal(result(integer.add, x, y), (u + v) & mask)
    assert np.array_equal(result(integer.subtract, x, y), (u - v) & mask)
    assert np.array_equal(result(integer.multiply, x, y), u * v)
    assert np.array_equal(result(integer.square, x), u * u)
    assert np.array_equal(from_wires(integer.square(Plain(), x, width)), (u * u) & mask)
    assert np.array_equal(from_wires(multiply_low(Plain(), x, y, width)), (u * v) & mask)
    assert np.array_equal(np.asarray(integer.less_than(Plain(), x, y)), a < b)


@pytest.mark.parametrize("width", [4, 16, 24, 31])
def test_signed_products_and_comparisons_equal_those_of_numpy(width: int) -> None:
    a, b = (values - (1 << (width - 1)) for values in inputs(width))
    x, y = to_wires(a, width), to_wires(b, width)
    assert np.array_equal(result(integer.multiply_signed, x, y, signed=True), a * b)
    assert np.array_equal(np.asarray(integer.less_than_signed(Plain(), x, y)), a < b)


@pytest.mark.parametrize("width", [4, 16, 32])
def test_division_and_square_root_equal_those_of_numpy(width: int) -> None:
    a, b = inputs(width)
    b = np.maximum(b, 1)
    quotient = integer.divide(Plain(), to_wires(a, width), to_wires(b, width), width)
    assert np.array_equal(from_wires(quotient), (a // b).astype(np.uint64))
    root = np.floor(np.sqrt(a.astype(np.float64))).astype(np.int64)
    assert np.array_equal(result(integer.square_root, to_wires(a, width)), root.astype(np.uint64))


def test_a_quotient_that_cannot_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="quotient of 2 bits"):
        integer.divide(Plain(), constant(0, 32), constant(1, 4), 2)


@given(st.integers(0, 2**20), st.integers(0, 2**24 - 1))
@settings(max_examples=60, deadline=None)
def test_any_public_factor_multiplies_exactly(factor: int, value: int) -> None:
    bits = to_wires(np.array([[value]]), 24)
    assert from_wires(integer.multiply_constant(Plain(), bits, factor, 45)).item() == factor * value
    gates = Plain()
    product = integer.multiply(gates, bits, constant(factor, 21))
    assert from_wires(product).item() == factor * value


@given(st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_lanes_add_up_for_any_length(values: list[int]) -> None:
    bits = to_wires(np.array([values]), 16)
    assert from_wires(integer.sum_lanes(Plain(), bits, signed=True), signed=True).item() == sum(values)


def test_shifts_and_leading_zeros_equal_those_of_python() -> None:
    a, _ = inputs(32)
    amount = np.random.default_rng(1).integers(0, 32, a.shape)
    x, k = to_wires(a, 32), to_wires(amount, 5)
    assert np.array_equal(result(integer.shift_right, x, k), (a >> amount).astype(np.uint64))
    top = integer.shift_left_to_top(Plain(), x, k, 16)
    assert np.array_equal(from_wires(top), (((a << amount) % 2**32) >> 16).astype(np.uint64))
    normal, shift = integer.leading_zeros(Plain(), x)
    zeros = np.vectorize(lambda v: 32 - int(v).bit_length())(a) % 32
    present = a > 0
    assert np.array_equal(from_wires(shift)[present], zeros[present].astype(np.uint64))
    assert np.array_equal(from_wires(normal)[present], ((a << zeros) % 2**32)[present].astype(np.uint64))


def test_a_table_costs_as_many_ands_as_it_has_entries_less_two() -> None:
    entries = np.random.default_rng(0).integers(0, 2**40, 64).tolist()
    gates = Plain()
    found = integer.look_up(gates, to_wires(np.arange(64)[:, None], 6), entries, 40)
    assert from_wires(found)[:, 0].tolist() == entries
    assert gates.ands == 62


@pytest.mark.parametrize(
    ("operation", "most"),
    [("add", 31), ("multiply", 1620), ("square", 1022), ("divide", 1024), ("square_root", 320)],
)
def test_and_counts_do_not_grow(operation: str, most: int) -> None:
    gates = Plain()
    a, b = (to_wires(np.zeros((1, 1), int), 32) for _ in "ab")
    operands = {"square": (a,), "square_root": (a,), "divide": (a, b, 32)}.get(operation, (a, b))
    getattr(integer, operation)(gates, *operands)
    assert gates.ands <= most
