"""The nonlinearities in IEEE float32, composed of the operations of `floating`.

Inputs come out of shares of at most 32 bits, so every number here is finite and bounded.
"""

from __future__ import annotations

import math

import numpy as np

from privit.cost.gates.circuits import floating, integer
from privit.cost.gates.circuits.floating import BIAS, EXPONENT, FRACTION, WIDE_EXPONENT
from privit.cost.gates.circuits.gates import Bits, Gates, constant, lane_count

_EXP_RANGE = 7  # |x| < 2^7: exp(-128) is below the smallest float
_EXP_FRACTION = 26


def relu(gates: Gates, x: Bits) -> Bits:
    """max(x, 0)."""
    return [*gates.mask(gates.not_(x[-1]), x[:-1]), 0]


def square(gates: Gates, x: Bits) -> Bits:
    """x^2, correctly rounded."""
    return floating.square(gates, x)


def reciprocal(gates: Gates, x: Bits) -> Bits:
    """1 / x, correctly rounded; x must not be zero."""
    return floating.divide(gates, floating.number(1.0), x)


def reciprocal_square_root(gates: Gates, x: Bits) -> Bits:
    """1 / sqrt(x) for x > 0, rounded twice."""
    return reciprocal(gates, floating.square_root(gates, x))


def _power_of_two(gates: Gates, fraction: Bits, index: int = 7) -> Bits:
    """2^r in [1, 2) for a fraction r, by a parabola on each of 2^index pieces; 25 bits after the point."""
    offset, choice, out = fraction[:-index], fraction[-index:], FRACTION + 2
    piece = 2.0**-index
    start = np.exp2(np.arange(1 << index) * piece)
    # Fitted at three Chebyshev points of the piece; o is the offset as a share of the piece.
    nodes = 0.5 + 0.5 * np.cos(np.pi * np.array([1, 3, 5]) / 6)
    c2, c1, c0 = np.polyfit(nodes, np.exp2(nodes * piece), 2)
    slope_width, bend_width = out - index + 1, out - 2 * index + 1
    tables = [np.rint(start * c * 2.0**out).astype(np.int64) for c in (c0, c1, c2)]
    widths = (out + 1, slope_width, bend_width)
    entries = [
        int(a) | int(b) << widths[0] | int(c) << (widths[0] + widths[1])
        for a, b, c in zip(*tables, strict=True)
    ]
    entry = integer.look_up(gates, choice, entries, sum(widths))
    base, slope, bend = entry[: widths[0]], entry[widths[0] : -widths[2]], entry[-widths[2] :]
    coarse = offset[-bend_width:]
    bent = integer.multiply(gates, coarse, bend)[len(coarse) :]
    slope = integer.add(gates, [*slope, 0], integer.extend(bent, len(slope) + 1))
    rise = integer.multiply(gates, slope, offset)[len(offset) :]
    return integer.add(gates, base, integer.extend(rise, len(base)))


def exp(gates: Gates, x: Bits) -> Bits:
    """exp(x) for x < 88; zero where the result would be below 2^-126."""
    _, exponent, sign = floating.parts(x)
    width = _EXP_RANGE + _EXP_FRACTION + 1
    far = gates.not_(integer.less_than(gates, exponent, constant(BIAS + _EXP_RANGE, EXPONENT)))
    size = floating.to_integer(gates, [*x[:-1], 0], width, _EXP_FRACTION)[:-1]
    factor_bits = _EXP_FRACTION + 2
    factor = round(math.log2(math.e) * (1 << factor_bits))
    product = integer.multiply_constant(gates, size, factor, len(size) + factor_bits + 1)[factor_bits:]
    power = integer.negate_if(gates, sign, [*product, 0])
    value = _power_of_two(gates, power[:_EXP_FRACTION])
    whole = integer.extend(power[_EXP_FRACTION:], WIDE_EXPONENT, signed=True)
    biased = integer.add(gates, whole, constant(BIAS - 1, WIDE_EXPONENT))
    cut = len(value) - FRACTION - 1
    return floating.round_and_pack(
        gates, 0, biased, value[cut:], value[cut - 1], gates.not_(far), special=False
    )


def gelu(gates: Gates, x: Bits) -> Bits:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) as x / (1 + e^-u), where e^-|u| cannot overflow."""
    scale = 2 * math.sqrt(2 / math.pi)
    bend = floating.multiply(gates, square(gates, x), floating.number(0.044715 * scale))
    u = floating.multiply(gates, x, floating.add(gates, bend, floating.number(scale)))
    power = exp(gates, [*u[:-1], 1])
    numerator = gates.select(x[-1], power, floating.number(1.0))
    share = floating.divide(gates, numerator, floating.add(gates, power, floating.number(1.0)))
    return floating.multiply(gates, x, share)


def maximum(gates: Gates, x: Bits) -> Bits:
    """The largest of all lanes."""
    return integer.reduce_lanes(gates, x, lambda a, b: floating.maximum(gates, a, b))


def _sum(gates: Gates, x: Bits) -> Bits:
    return integer.reduce_lanes(gates, x, lambda a, b: floating.add(gates, a, b))


def _normalise(gates: Gates, x: Bits, total: Bits) -> Bits:
    return floating.multiply(gates, x, reciprocal(gates, total))


def softmax(gates: Gates, x: Bits) -> Bits:
    """exp(x - max) / sum exp(x - max) over all lanes."""
    powers = exp(gates, floating.subtract(gates, x, maximum(gates, x)))
    return _normalise(gates, powers, _sum(gates, powers))


def relu_softmax(gates: Gates, x: Bits, eps: float = 1e-3) -> Bits:
    """relu(x) / (sum relu(x) + eps) over all lanes (MPCViT, Zeng et al. 2022)."""
    values = relu(gates, x)
    return _normalise(gates, values, floating.add(gates, _sum(gates, values), floating.number(eps)))


def two_quad(gates: Gates, x: Bits, shift: float = 5.0) -> Bits:
    """(x + 5)^2 / sum (x + 5)^2 over all lanes (MPCFormer, Li et al. 2022); they must not all be zero."""
    squares = square(gates, floating.add(gates, x, floating.number(shift)))
    return _normalise(gates, squares, _sum(gates, squares))


def layer_norm(gates: Gates, x: Bits, eps: float = 1e-6) -> Bits:
    """(x - mean) / sqrt(variance + eps) over all lanes; scale and shift belong to the next matrix."""
    over_count = floating.number(1 / lane_count(x))
    mean = floating.multiply(gates, _sum(gates, x), over_count)
    centred = floating.subtract(gates, x, mean)
    total = _sum(gates, square(gates, centred))
    variance = floating.add(gates, floating.multiply(gates, total, over_count), floating.number(eps))
    return floating.multiply(gates, centred, reciprocal_square_root(gates, variance))
