"""The nonlinearities on fixed-point numbers: integers that stand for themselves over 2^fraction.

Tables make fixed point cheap in a garbled circuit: choosing among 2^k public entries costs 2^k - 2 ANDs,
however wide the entries are. Functions of one variable are therefore lines on 2^k pieces, with k such
that the lines miss the function by less than half a unit of the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privit.cost.gates.circuits import integer
from privit.cost.gates.circuits.gates import Bits, Gates, constant, from_wires, lane_count, to_wires
from privit.errors import RequestError

MAX_TABLE_FRACTION = 16


@dataclass(frozen=True)
class FixedFormat:
    """Two's complement numbers of `width` bits, `fraction` of them after the point."""

    width: int
    fraction: int

    def __post_init__(self) -> None:
        if not 0 < self.fraction < self.width - 1 or self.width > 48:
            raise RequestError(
                f"{self.width} bits with {self.fraction} after the point is not a usable fixed-point format",
                "give a width up to 48 and a smaller fraction",
            )

    @property
    def unit(self) -> float:
        """The distance between two neighbouring numbers."""
        return 2.0**-self.fraction

    def round(self, values: np.ndarray) -> np.ndarray:
        """Real values as integers of this format; refuses what does not fit."""
        if not np.isfinite(values).all():
            raise RequestError("the inputs hold infinity or NaN, which fixed point cannot represent")
        integers = np.rint(np.asarray(values, np.float64) / self.unit)
        if np.abs(integers).max(initial=0) >= 1 << (self.width - 1):
            raise RequestError(
                f"the inputs reach {np.abs(values).max():.6g}, but {self.width} bits with {self.fraction} "
                f"after the point end at {2.0 ** (self.width - 1 - self.fraction):.6g}",
                "use a wider format or a smaller fraction",
            )
        return integers.astype(np.int64)

    def encode(self, values: np.ndarray) -> Bits:
        """Real values of shape (batch, lanes) as wires."""
        return to_wires(self.round(values), self.width)

    def decode(self, bits: Bits) -> np.ndarray:
        """The real values on the wires of a two's complement number."""
        return from_wires(bits, signed=True) * self.unit


def _table_fraction(form: FixedFormat) -> int:
    if form.fraction > MAX_TABLE_FRACTION:
        raise RequestError(
            f"tables have at most {MAX_TABLE_FRACTION} bits after the point, the format has {form.fraction}",
            "use a smaller fraction, or float32",
        )
    return form.fraction


def lines(
    gates: Gates, x: Bits, index: int, function: Callable[[np.ndarray], np.ndarray], end: float, fraction: int
) -> Bits:
    """A function on [0, end) by a line on each of 2^index pieces; x spans the interval with all its bits.

    The result is unsigned with `fraction` bits after the point; the function must not be negative.
    """
    offset, choice = x[:-index], x[-index:]
    piece = end / (1 << index)
    start = np.arange(1 << index) * piece
    inside = np.linspace(0, piece, 65)
    values = function(start[:, None] + inside[None, :])
    guard = 2
    shift = len(offset) + 1 + guard
    scale = piece / (1 << len(offset)) * 2.0 ** (fraction + shift)
    slopes = np.rint((values[:, -1] - values[:, 0]) / piece * scale).astype(np.int64)
    # Half the largest deviation moves the line to the middle of the band that holds the function.
    deviation = values - (slopes / scale)[:, None] * inside[None, :]
    middle = (deviation.max(axis=1) + deviation.min(axis=1)) / 2 * 2.0 ** (fraction + guard)
    bases = np.rint(middle).astype(np.int64) + (1 << guard) // 2
    rising = bool((slopes >= 0).all())
    mixed = not rising and bool((slopes > 0).any())
    steps = slopes if mixed else np.abs(slopes)
    step_width = int(np.abs(slopes).max()).bit_length() + int(mixed)
    width = int(max(bases.max(), np.ceil(values.max() * 2.0 ** (fraction + guard)))).bit_length() + 1
    table = [int(b) + (int(s % (1 << step_width)) << width) for b, s in zip(bases, steps, strict=True)]
    entry = integer.look_up(gates, choice, table, width + step_width)
    base, slope = entry[:width], entry[width:]
    product = (
        integer.multiply_signed(gates, slope, offset, b_signed=False)
        if mixed
        else integer.multiply(gates, slope, offset)
    )
    change = integer.extend(product[shift - guard :], width, signed=mixed)
    combine = integer.add if rising or mixed else integer.subtract
    return combine(gates, base, change)[guard:-1]


def relu(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """max(x, 0)."""
    return [*gates.mask(gates.not_(x[-1]), x[:-1]), 0]


def square(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """x^2; it must fit the format."""
    product = integer.square(gates, integer.magnitude(gates, x), form.width - 1 + form.fraction)
    return [*product[form.fraction :], 0]


def gelu(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """x Phi(x) = max(x, 0) - |x| (1 - Phi(|x|)); the last term is even and vanishes beyond a few units."""
    fraction = _table_fraction(form)
    reach = 2 if fraction <= 12 else 3  # |x| (1 - Phi(|x|)) is 1.3e-4 at 4 and 5e-15 at 8
    magnitude = integer.magnitude(gates, x)
    inside = fraction + reach
    index = reach + max((fraction - 2) // 2, 1)
    tail = lines(gates, magnitude[:inside], index, _gelu_tail, float(1 << reach), fraction)
    tail = gates.mask(gates.not_(gates.any_bit(magnitude[inside:])), tail)
    return integer.subtract(gates, relu(gates, form, x), integer.extend(tail, form.width))


def _gelu_tail(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(x / math.sqrt(2))


def exp_negative(gates: Gates, t: Bits, fraction: int, precision: int, extra: int = 0) -> Bits:
    """exp(-t) in [0, 1] for an unsigned t, with `precision` significant bits.

    The result has precision + extra bits after the point, rounded: a bias, or an absolute error
    that is not far below the result's unit, would add up over the lanes of a softmax.
    """
    significant, places = precision + 1, precision + extra + 1
    stages = places.bit_length()
    reach = stages + fraction  # beyond 2^stages > places the result is zero
    more = max(significant + 3 - fraction, 0)
    factor_bits = significant + 4
    factor = round(math.log2(math.e) * (1 << factor_bits))
    low = [0] * more + t[:reach]
    product = integer.multiply_constant(gates, low, factor, len(low) + factor_bits + 1)[factor_bits:]
    point = fraction + more
    index = (significant - 3) // 2
    mantissa = lines(gates, product[:point], index, lambda r: np.exp2(-r), 1.0, significant)
    shifted = integer.shift_right(gates, [0] * extra + mantissa, product[point : point + stages])
    gone = gates.any_bit(product[point + stages :] + t[reach:])
    power = gates.mask(gates.not_(gone), shifted)
    return integer.add(gates, power[1:], constant(0, len(power) - 1), power[0])


def exp(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """exp(x) for x <= 0, the case that a softmax needs."""
    fraction = _table_fraction(form)
    t = integer.magnitude(gates, x)
    return integer.extend(exp_negative(gates, t, fraction, fraction), form.width)


def reciprocal(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """1 / x, rounded toward zero; x must not be zero."""
    numerator = constant(1 << (2 * form.fraction), 2 * form.fraction + 1)
    quotient = integer.divide(gates, numerator, integer.magnitude(gates, x), len(numerator))
    return integer.negate_if(gates, x[-1], integer.extend(quotient, form.width))


def reciprocal_square_root(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """1 / sqrt(x) for x > 0."""
    fraction, extra = form.fraction, form.fraction
    padding = [0] * (fraction + 2 * extra)
    radicand = padding + list(x[:-1])
    radicand = integer.extend(radicand, len(radicand) + len(radicand) % 2)
    root = integer.square_root(gates, radicand)
    numerator = constant(1 << (2 * fraction + extra), 2 * fraction + extra + 1)
    quotient = integer.divide(gates, numerator, root, fraction + fraction // 2 + 2)
    return integer.extend(quotient, form.width)


def maximum(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """The largest of all lanes."""

    def larger(a: Bits, b: Bits) -> Bits:
        return gates.select(integer.less_than_signed(gates, a, b), b, a)

    return integer.reduce_lanes(gates, x, larger)


def _normalise(
    gates: Gates, form: FixedFormat, values: Bits, precision: int, total: Bits, lowest: int
) -> Bits:
    """values / total, for values of `precision` bits and a total of at least 2^lowest."""
    numerator = constant(1 << (2 * precision), 2 * precision + 1)
    inverse = integer.divide(gates, numerator, total, 2 * precision - lowest + 1)
    product = integer.multiply(gates, values, inverse)[2 * precision - form.fraction :]
    return integer.extend(product[: form.fraction + 1], form.width)


def softmax(gates: Gates, form: FixedFormat, x: Bits) -> Bits:
    """exp(x - max) / sum exp(x - max) over all lanes."""
    precision = _table_fraction(form) + 2
    distance = integer.subtract(gates, maximum(gates, form, x), x)
    # As many places more as the sum of all the lanes' rounding errors needs to stay below a unit.
    extra = (lane_count(x) - 1).bit_length()
    powers = exp_negative(gates, distance, form.fraction, precision, extra)
    total = integer.sum_lanes(gates, powers)[extra:]
    return _normalise(gates, form, powers[extra:], precision, total, precision - 1)


def _common_scale(gates: Gates, values: Bits, keep: int) -> tuple[Bits, Bits]:
    """All lanes shifted left alike until the largest fills `keep` bits, and by how much."""
    _, amount = integer.leading_zeros(gates, integer.any_lane(gates, values))
    return integer.shift_left_to_top(gates, values, amount, keep), amount


def _scaled_constant(gates: Gates, value: float, amount: Bits, power: int) -> Bits:
    """A public value that follows a common scale: value x 2^(power x amount)."""
    entries = [round(value * 2.0 ** (power * shift)) for shift in range(1 << len(amount))]
    return integer.look_up(gates, amount, entries, max(entries).bit_length())


def _add_wide(gates: Gates, a: Bits, b: Bits) -> Bits:
    width = max(len(a), len(b)) + 1
    return integer.add(gates, integer.extend(a, width), integer.extend(b, width))


def relu_softmax(gates: Gates, form: FixedFormat, x: Bits, eps: float = 1e-3) -> Bits:
    """relu(x) / (sum relu(x) + eps) over all lanes (MPCViT, Zeng et al. 2022)."""
    precision = form.fraction + 4
    values, amount = _common_scale(gates, relu(gates, form, x)[:-1], precision)
    scaled = eps * 2.0 ** (form.fraction + precision - (form.width - 1))
    total = _add_wide(gates, integer.sum_lanes(gates, values), _scaled_constant(gates, scaled, amount, 1))
    return _normalise(gates, form, values, precision, total, precision - 1)


def two_quad(gates: Gates, form: FixedFormat, x: Bits, shift: float = 5.0) -> Bits:
    """(x + 5)^2 / sum (x + 5)^2 over all lanes (MPCFormer, Li et al. 2022); they must not all be zero."""
    precision = form.fraction + 4
    moved = integer.add(gates, x, constant(round(shift / form.unit), form.width))
    values, _ = _common_scale(gates, integer.magnitude(gates, moved), precision)
    squares = integer.square(gates, values)[precision:]
    return _normalise(gates, form, squares, precision, integer.sum_lanes(gates, squares), precision - 2)


def layer_norm(gates: Gates, form: FixedFormat, x: Bits, eps: float = 1e-6) -> Bits:
    """(x - mean) / sqrt(variance + eps) over all lanes; scale and shift belong to the next matrix."""
    fraction, count = form.fraction, lane_count(x)
    # Deviations keep more bits for the variance, where their errors add up, than for the result.
    narrow, keep, extra = fraction + 4, fraction + 8, fraction // 2
    factor_bits = form.width
    factor = round((1 << factor_bits) / count)
    total = integer.sum_lanes(gates, x, signed=True)
    wide = len(total) + factor_bits
    mean = integer.multiply_constant(gates, integer.extend(total, wide, True), factor, wide)
    # The mean keeps `extra` bits below the unit, which count where the deviations are small.
    width = form.width + 1 + extra
    centred = integer.subtract(
        gates,
        integer.extend([0] * extra + x, width, True),
        integer.extend(mean[factor_bits - extra :], width, True),
    )
    values, amount = _common_scale(gates, integer.magnitude(gates, centred), keep)
    squares = integer.sum_lanes(gates, integer.square(gates, values))
    variance = integer.multiply_constant(gates, squares, factor, len(squares) + factor_bits)
    scaled = eps * 2.0 ** (2 * (fraction + extra + keep - (width - 1)))
    # The mean of the squares fits 2 keep bits, and one more for the rounding of 1 / count.
    variance = variance[factor_bits : factor_bits + 2 * keep + 1]
    variance = _add_wide(gates, variance, _scaled_constant(gates, scaled, amount, 2))
    radicand = [0] * (2 * extra) + variance
    root = integer.square_root(gates, integer.extend(radicand, len(radicand) + len(radicand) % 2))
    # The largest value is at least 2^(keep - 1), so the root is at least that over sqrt(count).
    lowest = keep - 1 + extra - (count.bit_length() + 1) // 2
    drop = keep - narrow
    power = keep + extra + fraction + 1
    inverse = integer.divide(gates, constant(1 << power, power + 1), root, power - lowest + 1)
    product = integer.multiply(gates, values[drop:], inverse)[power - drop - extra - fraction :]
    return integer.negate_if(gates, centred[-1], integer.extend(product, form.width))
