"""IEEE 754 float32 with rounding to nearest even, bit-exact.

A float is 32 wires: 23 of fraction, 8 of exponent, the sign. Subnormal numbers are flushed: a result
that is below 2^-126 once rounded to 24 bits becomes a zero of the same sign, and `encode` refuses
subnormal inputs. Two forms of each operation:

- `add`, `multiply`, `divide`: for finite numbers whose result is below 2^128. This is what the
  functions use: their inputs come out of shares and are bounded, so no infinity can arise.
- the same with `special=True`: infinities, NaN, overflow and division by zero as IEEE says
  (NaN is the one quiet NaN 0x7fc00000).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privit.cost.gates.circuits import integer
from privit.cost.gates.circuits.gates import Bits, Gates, Wire, constant, from_wires, to_wires
from privit.errors import RequestError

FRACTION, EXPONENT, BIAS = 23, 8, 127
WIDE_EXPONENT = EXPONENT + 2  # an exponent that may leave its range on either side, in two's complement
_ROUND_BITS = 3  # guard, round and sticky


def encode(values: np.ndarray, special: bool = False) -> Bits:
    """float32 values of shape (batch, lanes) as wires; refuses what the circuit would get wrong."""
    values = np.asarray(values, np.float32)
    if not special and not np.isfinite(values).all():
        raise RequestError(
            "the inputs hold infinity or NaN, but this circuit is for finite numbers",
            "use the operation with special=True",
        )
    if ((values != 0) & (np.abs(values) < np.finfo(np.float32).tiny)).any():
        raise RequestError(
            "the inputs hold subnormal numbers, which these circuits do not represent",
            "replace them by zero",
        )
    return to_wires(np.ascontiguousarray(values).view(np.uint32), FRACTION + EXPONENT + 1)


def decode(bits: Sequence[Wire]) -> np.ndarray:
    """The float32 values on 32 wires."""
    return from_wires(bits).astype(np.uint32).view(np.float32)


def number(value: float) -> Bits:
    """A public float32."""
    return constant(int(np.float32(value).view(np.uint32)), FRACTION + EXPONENT + 1)


def parts(a: Sequence[Wire]) -> tuple[Bits, Bits, Wire]:
    """Fraction, exponent and sign of a float's wires."""
    return list(a[:FRACTION]), list(a[FRACTION : FRACTION + EXPONENT]), a[-1]


def round_and_pack(
    gates: Gates, sign: Wire, exponent: Bits, significand: Bits, up: Wire, present: Wire, special: bool
) -> Bits:
    """Packs significand x 2^exponent, rounding up where `up` is 1; zero where `present` is 0.

    `exponent` is one less than the biased exponent: the significand's leading one and the carry of
    the rounding add to it.
    """
    width = FRACTION + WIDE_EXPONENT
    joined = integer.extend([0] * FRACTION + exponent, width)
    total = integer.add(gates, joined, integer.extend(significand, width), up)
    fraction, high = total[:FRACTION], total[FRACTION:]
    tiny = gates.or_(high[-1], gates.not_(gates.any_bit(high[:-1])))
    keep = gates.and_(present, gates.not_(tiny))
    if not special:
        return gates.mask(keep, fraction) + gates.mask(keep, high[:EXPONENT]) + [sign]
    huge = gates.or_(high[EXPONENT], gates.all_bits(high[:EXPONENT]))
    huge = gates.and_(keep, huge)
    finite = gates.and_(keep, gates.not_(huge))
    # Where the number is finite `huge` is 0, so the two masked parts never meet and XOR joins them.
    top = [gates.xor(huge, bit) for bit in gates.mask(finite, high[:EXPONENT])]
    return gates.mask(finite, fraction) + top + [sign]


def _class(gates: Gates, a: Sequence[Wire]) -> tuple[Wire, Wire]:
    """1 where a is infinite, and 1 where it is NaN."""
    fraction, exponent, _ = parts(a)
    full, filled = gates.all_bits(exponent), gates.any_bit(fraction)
    nan = gates.and_(full, filled)
    return gates.xor(full, nan), nan


def _override(gates: Gates, result: Bits, infinite: Wire, nan: Wire) -> Bits:
    """`result`, or infinity or NaN where the flags say so (never both)."""
    fraction, exponent, sign = parts(result)
    odd = gates.xor(infinite, nan)
    fraction = gates.mask(gates.not_(odd), fraction)
    fraction[-1] = gates.xor(fraction[-1], nan)
    exponent = [gates.or_(odd, bit) for bit in exponent]
    return fraction + exponent + [gates.and_(sign, gates.not_(nan))]


def _nearest_even(gates: Gates, last: Wire, guard: Wire, sticky: Wire) -> Wire:
    return gates.and_(guard, gates.or_(sticky, last))


def add(gates: Gates, a: Sequence[Wire], b: Sequence[Wire], special: bool = False) -> Bits:
    """a + b."""
    swap = integer.less_than(gates, a[:-1], b[:-1])
    large = gates.select(swap, b, a)
    small = [gates.xor(gates.xor(x, y), z) for x, y, z in zip(a, b, large, strict=True)]
    (fraction_l, exponent_l, sign), (fraction_s, exponent_s, sign_s) = parts(large), parts(small)
    present_l, present_s = gates.any_bit(exponent_l), gates.any_bit(exponent_s)
    distance = integer.subtract(gates, exponent_l, exponent_s)
    moved, sticky = _shift_sticky(
        gates, [0] * _ROUND_BITS + fraction_s + [present_s], distance[:5], distance[5:], present_s
    )
    moved[0] = gates.or_(moved[0], sticky)
    opposite = gates.xor(sign, sign_s)
    base = [0] * _ROUND_BITS + fraction_l + [present_l, 0]
    total = integer.add(gates, base, [gates.xor(opposite, bit) for bit in [*moved, 0]], opposite)
    normal, shift = integer.leading_zeros(gates, total)
    cut = _ROUND_BITS + 1
    up = _nearest_even(gates, normal[cut], normal[cut - 1], gates.any_bit(normal[: cut - 1]))
    exponent = integer.subtract(
        gates, integer.extend(exponent_l, WIDE_EXPONENT), integer.extend(shift, WIDE_EXPONENT)
    )
    # An exact difference of zero is positive; a sum of two zeros of one sign keeps it.
    cancelled = gates.and_(opposite, gates.not_(normal[-1]))
    sign = gates.and_(sign, gates.not_(cancelled))
    result = round_and_pack(gates, sign, exponent, normal[cut:], up, normal[-1], special)
    if not special:
        return result
    infinite_l, nan_l = _class(gates, large)
    infinite_s = gates.and_(infinite_l, gates.not_(gates.any_bit(distance)))
    nan = gates.or_(nan_l, gates.and_(infinite_s, opposite))
    return _override(gates, result, gates.and_(infinite_l, gates.not_(nan)), nan)


def _shift_sticky(gates: Gates, a: Bits, amount: Bits, beyond: Bits, present: Wire) -> tuple[Bits, Wire]:
    """a >> amount, and 1 where a one was shifted out; `beyond` are the bits that shift out everything."""
    sticky: Wire = 0
    for i, bit in enumerate(amount):
        step = 1 << i
        sticky = gates.or_(sticky, gates.and_(bit, gates.any_bit(a[:step])))
        a = gates.select(bit, integer.extend(a[step:], len(a)), a)
    far = gates.any_bit(beyond)
    return gates.mask(gates.not_(far), a), gates.and_(present, gates.or_(sticky, far))


def subtract(gates: Gates, a: Sequence[Wire], b: Sequence[Wire], special: bool = False) -> Bits:
    """a - b."""
    return add(gates, a, [*b[:-1], gates.not_(b[-1])], special)


def _product_to_float(
    gates: Gates, product: Bits, exponents: Sequence[Bits], sign: Wire, present: Wire, special: bool
) -> Bits:
    top = product[-1]
    significand = gates.select(top, product[-FRACTION - 1 :], product[-FRACTION - 2 : -1])
    below = product[: FRACTION - 1]
    guard = gates.select(top, [product[FRACTION]], [product[FRACTION - 1]])[0]
    sticky = gates.or_(gates.any_bit(below), gates.and_(top, product[FRACTION - 1]))
    up = _nearest_even(gates, significand[0], guard, sticky)
    first, second = (integer.extend(e, WIDE_EXPONENT) for e in exponents)
    exponent = integer.add(gates, integer.add(gates, first, second, top), constant(-BIAS - 1, WIDE_EXPONENT))
    return round_and_pack(gates, sign, exponent, significand, up, present, special)


def multiply(gates: Gates, a: Sequence[Wire], b: Sequence[Wire], special: bool = False) -> Bits:
    """a * b."""
    (fraction_a, exponent_a, sign_a), (fraction_b, exponent_b, sign_b) = parts(a), parts(b)
    present = gates.and_(gates.any_bit(exponent_a), gates.any_bit(exponent_b))
    product = integer.multiply(gates, [*fraction_a, 1], [*fraction_b, 1])
    sign = gates.xor(sign_a, sign_b)
    result = _product_to_float(gates, product, (exponent_a, exponent_b), sign, present, special)
    if not special:
        return result
    (infinite_a, nan_a), (infinite_b, nan_b) = _class(gates, a), _class(gates, b)
    infinite = gates.or_(infinite_a, infinite_b)
    nan = gates.or_(gates.or_(nan_a, nan_b), gates.and_(infinite, gates.not_(present)))
    return _override(gates, result, gates.and_(infinite, gates.not_(nan)), nan)


def square(gates: Gates, a: Sequence[Wire]) -> Bits:
    """a * a for finite numbers, with half the ANDs of a product."""
    fraction, exponent, _ = parts(a)
    product = integer.square(gates, [*fraction, 1])
    return _product_to_float(gates, product, (exponent, exponent), 0, gates.any_bit(exponent), False)


def divide(gates: Gates, a: Sequence[Wire], b: Sequence[Wire], special: bool = False) -> Bits:
    """a / b; without `special`, b must not be zero.

    A quotient of two 24-bit significands never lies halfway between two floats, so the bit after
    the last decides the rounding and no remainder is needed.
    """
    (fraction_a, exponent_a, sign_a), (fraction_b, exponent_b, sign_b) = parts(a), parts(b)
    digits = FRACTION + 3
    numerator = [0] * (digits - 1) + [*fraction_a, 1]
    quotient = integer.divide(gates, numerator, [*fraction_b, 1], digits)
    top = quotient[-1]
    significand = gates.select(top, quotient[2:], quotient[1:-1])
    guard = gates.select(top, quotient[1:2], quotient[:1])[0]
    difference = integer.subtract(
        gates, integer.extend(exponent_a, WIDE_EXPONENT), integer.extend(exponent_b, WIDE_EXPONENT)
    )
    exponent = integer.add(gates, difference, constant(BIAS - 2, WIDE_EXPONENT), top)
    sign = gates.xor(sign_a, sign_b)
    present_a = gates.any_bit(exponent_a)
    if not special:
        return round_and_pack(gates, sign, exponent, significand, guard, present_a, False)
    present_b = gates.any_bit(exponent_b)
    (infinite_a, nan_a), (infinite_b, nan_b) = _class(gates, a), _class(gates, b)
    keep = gates.and_(gates.and_(present_a, present_b), gates.not_(infinite_b))
    result = round_and_pack(gates, sign, exponent, significand, guard, keep, True)
    both_zero = gates.not_(gates.or_(present_a, present_b))
    nan = gates.or_(gates.or_(nan_a, nan_b), gates.or_(both_zero, gates.and_(infinite_a, infinite_b)))
    infinite = gates.and_(gates.or_(infinite_a, gates.not_(present_b)), gates.not_(nan))
    return _override(gates, result, infinite, nan)


def square_root(gates: Gates, a: Sequence[Wire]) -> Bits:
    """sqrt(a) of a finite, non-negative number; never halfway between two floats, as in `divide`."""
    fraction, exponent, sign = parts(a)
    odd = gates.not_(exponent[0])  # the bias is odd, so an even exponent field is an odd power of two
    significand = [*fraction, 1]
    doubled = gates.select(odd, [0, *significand], [*significand, 0])
    # 2 x (24 + 1) bits give a root of 25: the significand and the bit that decides the rounding.
    root = integer.square_root(gates, [0] * (2 * (FRACTION + 2) - len(doubled)) + doubled)
    half = [*exponent[1:], 0, 0, 0]
    biased = integer.add(gates, half, constant(BIAS // 2 - 1, WIDE_EXPONENT), exponent[0])
    return round_and_pack(gates, sign, biased, root[1:], root[0], gates.any_bit(exponent), False)


def less_than(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Wire:
    """1 where a < b for finite numbers, except that -0 < +0."""
    keys = []
    for x in (a, b):
        # Flipping the magnitude of negative numbers gives integers in the order of the floats.
        keys.append([gates.xor(bit, x[-1]) for bit in x[:-1]] + [gates.not_(x[-1])])
    return integer.less_than(gates, keys[0], keys[1])


def maximum(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Bits:
    """The larger of two finite numbers."""
    return gates.select(less_than(gates, a, b), b, a)


def from_integer(gates: Gates, a: Sequence[Wire], fraction: int) -> Bits:
    """A two's complement integer a as the float a / 2^fraction, rounded to nearest even."""
    size = len(a)
    flipped = integer.negate_if(gates, a[-1], a)
    normal, shift = integer.leading_zeros(gates, flipped)
    low = max(size - FRACTION - 1, 0)
    normal_cut = [0] * max(FRACTION + 1 - size, 0) + normal[low:]
    up: Wire = 0
    if low:
        up = _nearest_even(gates, normal[low], normal[low - 1], gates.any_bit(normal[: low - 1]))
    top = constant(size - 1 - fraction + BIAS - 1, WIDE_EXPONENT)
    exponent = integer.subtract(gates, top, integer.extend(shift, WIDE_EXPONENT))
    sign = gates.and_(a[-1], normal[-1])
    return round_and_pack(gates, sign, exponent, normal_cut, up, normal[-1], False)


def to_integer(gates: Gates, a: Sequence[Wire], width: int, fraction: int) -> Bits:
    """a x 2^fraction rounded toward zero, in `width` bits of two's complement; |a| must fit."""
    fraction_bits, exponent, sign = parts(a)
    reach = width - 1 - fraction  # |a| < 2^reach
    significand = integer.extend([0] * max(width - 2 - FRACTION, 0) + [*fraction_bits, 1], width - 1)
    if width - 2 < FRACTION:
        significand = [*fraction_bits, 1][FRACTION + 2 - width :]
    drop = integer.subtract(
        gates, constant(BIAS + reach - 1, WIDE_EXPONENT), integer.extend(exponent, WIDE_EXPONENT)
    )
    stages = (width - 1).bit_length()
    gone = gates.any_bit(drop[stages:])
    moved = integer.shift_right(gates, significand, drop[:stages])
    moved = gates.mask(gates.not_(gone), moved)
    return integer.negate_if(gates, sign, [*moved, 0])
