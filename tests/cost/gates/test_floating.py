"""float32 circuits give numpy's bits, special values included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privit.cost.gates.circuits import floating
from privit.cost.gates.circuits.gates import Plain, from_wires, to_wires
from privit.errors import RequestError

INPUTS = 50_000
OPERATIONS: dict[str, tuple[Callable, Callable]] = {
    "add": (floating.add, np.add),
    "subtract": (floating.subtract, np.subtract),
    "multiply": (floating.multiply, np.multiply),
    "divide": (floating.divide, np.divide),
}
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        np.inf,
        -np.inf,
        np.nan,
        3.4028235e38,
        -3.4028235e38,
        1.1754944e-38,
        1e20,
        -1e-20,
    ],
    np.float32,
)


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def operands(spread: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of 2^-spread to 2^spread, with near and exact cancellations."""
    rng = np.random.default_rng(seed)
    scale = lambda: np.exp2(rng.integers(-spread, spread, (INPUTS, 1)))  # noqa: E731
    a, b = ((rng.standard_normal((INPUTS, 1)) * scale()).astype(np.float32) for _ in "ab")
    b[:500] = -a[:500]
    b[500:1000] = -np.nextafter(a[500:1000], np.float32(0))
    b[1000:1500] = (bits(a[1000:1500]) ^ 1).view(np.float32)
    # Few significant bits make exact ties, which must go to the even neighbour.
    a[2000:6000] = np.rint(a[2000:6000] * 8) / 8
    b[2000:6000] = np.exp2(rng.integers(-30, 30, (4000, 1)))
    return a, b


def flushed(operation: Callable, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The result rounded to 24 bits whatever its exponent, and zero of its sign if below 2^-126.

    float64 holds sums, products and quotients of float32 well enough to round once more
    without harm (Figueroa 1995), which numpy's own subnormal results would not allow.
    """
    with np.errstate(all="ignore"):
        exact = operation(a.astype(np.float64), b.astype(np.float64))
        part, exponent = np.frexp(exact)
        rounded = np.ldexp(np.rint(part * 2**24), exponent - 24)
        small = np.abs(rounded) < np.finfo(np.float32).tiny
        return np.where(small, np.copysign(0, exact), rounded).astype(np.float32)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_finite_results_are_numpys_to_the_last_bit(name: str, special: bool) -> None:
    circuit, reference = OPERATIONS[name]
    a, b = operands(spread=24)
    if name == "divide":
        b[b == 0] = 1
    found = floating.decode(circuit(Plain(), floating.encode(a), floating.encode(b), special))
    assert np.array_equal(bits(found), bits(reference(a, b)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_over_the_whole_range_overflow_and_flush_as_stated(name: str) -> None:
    circuit, reference = OPERATIONS[name]
    a, b = operands(spread=125, seed=1)
    keep = (np.abs(a) >= np.finfo(np.float32).tiny) & (np.abs(b) >= np.finfo(np.float32).tiny)
    a, b = a[keep.ravel()], b[keep.ravel()]
    found = floating.decode(circuit(Plain(), floating.encode(a), floating.encode(b), True))
    expected = flushed(reference, a, b)
    assert np.isinf(expected).any() or name in ("add", "subtract")
    assert np.array_equal(bits(found), bits(expected))


@pytest.mark.parametrize("name", OPERATIONS)
def test_zero_infinity_nan_and_overflow_follow_ieee(name: str) -> None:
    circuit, reference = OPERATIONS[name]
    a, b = (part.reshape(-1, 1) for part in np.meshgrid(SPECIAL, SPECIAL))
    encoded = [floating.encode(part, special=True) for part in (a, b)]
    found = floating.decode(circuit(Plain(), *encoded, special=True))
    expected = flushed(reference, a, b)
    expected = np.where(np.isnan(expected), np.uint32(0x7FC00000), bits(expected))
    assert np.array_equal(bits(found), expected)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_circuits_for_finite_numbers_refuse_infinity_and_nan(value: float) -> None:
    with pytest.raises(RequestError, match="infinity or NaN"):
        floating.encode(np.array([[value]]))


def test_subnormal_inputs_are_refused() -> None:
    with pytest.raises(RequestError, match="subnormal"):
        floating.encode(np.array([[1e-40]], np.float32), special=True)


def test_square_and_square_root_are_correctly_rounded() -> None:
    a, _ = operands(spread=24)
    found = floating.decode(floating.square(Plain(), floating.encode(a)))
    assert np.array_equal(bits(found), bits(a * a))
    found = floating.decode(floating.square_root(Plain(), floating.encode(np.abs(a))))
    assert np.array_equal(bits(found), bits(np.sqrt(np.abs(a))))


def test_comparison_orders_floats() -> None:
    a, b = operands(spread=24)
    found = np.asarray(floating.less_than(Plain(), floating.encode(a), floating.encode(b)))
    differ = a != b
    assert np.array_equal(found[differ], (a < b)[differ])


def test_conversion_from_fixed_point_rounds_and_back_truncates() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**31) + 1, 2**31, (INPUTS, 1)) >> rng.integers(0, 31, (INPUTS, 1))
    values[0] = 0
    found = floating.decode(floating.from_integer(Plain(), to_wires(values, 32), 12))
    assert np.array_equal(found, (values / 2.0**12).astype(np.float32))
    small = np.where(np.abs(found) < 2.0**19, found, 0).astype(np.float32)
    back = from_wires(floating.to_integer(Plain(), floating.encode(small), 32, 12), signed=True)
    assert np.array_equal(back, np.trunc(small.astype(np.float64) * 2**12).astype(np.int64))


@pytest.mark.parametrize(
    ("name", "finite", "ieee"), [("add", 560, 643), ("multiply", 1110, 1217), ("divide", 747, 865)]
)
def test_and_counts_do_not_grow(name: str, finite: int, ieee: int) -> None:
    for special, most in ((False, finite), (True, ieee)):
        gates = Plain()
        a, b = (floating.encode(np.ones((1, 1))) for _ in "ab")
        OPERATIONS[name][0](gates, a, b, special)
        assert gates.ands <= most
