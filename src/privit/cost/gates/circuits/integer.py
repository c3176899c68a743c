"""Integer arithmetic: bit-exact, with the fewest ANDs we know for each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from privit.cost.gates.circuits.gates import Bits, Gates, Wire, constant, lane_count, lanes


def extend(bits: Sequence[Wire], width: int, signed: bool = False) -> Bits:
    """The same number with `width` bits; cuts off high bits if it has more."""
    top = bits[-1] if signed and bits else 0
    return (list(bits) + [top] * (width - len(bits)))[:width]


def add_carry(gates: Gates, a: Sequence[Wire], b: Sequence[Wire], carry: Wire = 0) -> tuple[Bits, Wire]:
    """Sum and carry out of two numbers of equal width; one AND a bit (Boyar, Peralta 2010)."""
    total = []
    for x, y in zip(a, b, strict=True):
        p, q = gates.xor(x, carry), gates.xor(y, carry)
        total.append(gates.xor(p, y))
        carry = gates.xor(carry, gates.and_(p, q))
    return total, carry


def add(gates: Gates, a: Sequence[Wire], b: Sequence[Wire], carry: Wire = 0) -> Bits:
    """a + b + carry modulo 2^width; the top bit needs no AND."""
    low, carry = add_carry(gates, a[:-1], b[:-1], carry)
    return [*low, gates.xor(gates.xor(a[-1], b[-1]), carry)]


def invert(gates: Gates, a: Sequence[Wire]) -> Bits:
    """Every bit negated, which is free."""
    return [gates.not_(bit) for bit in a]


def subtract(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Bits:
    """a - b modulo 2^width."""
    return add(gates, a, invert(gates, b), 1)


def subtract_borrow(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> tuple[Bits, Wire]:
    """a - b modulo 2^width, and 1 where a < b as unsigned numbers."""
    difference, carry = add_carry(gates, a, invert(gates, b), 1)
    return difference, gates.not_(carry)


def less_than(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Wire:
    """1 where a < b as unsigned numbers."""
    return subtract_borrow(gates, a, b)[1]


def less_than_signed(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Wire:
    """1 where a < b in two's complement: flipping both sign bits makes the order unsigned."""
    return less_than(gates, [*a[:-1], gates.not_(a[-1])], [*b[:-1], gates.not_(b[-1])])


def negate_if(gates: Gates, control: Wire, a: Sequence[Wire]) -> Bits:
    """-a where `control` is 1, a elsewhere."""
    flipped = [gates.xor(control, bit) for bit in a]
    return add(gates, flipped, constant(0, len(a)), control)


def magnitude(gates: Gates, a: Sequence[Wire]) -> Bits:
    """|a| with one bit less than a; the most negative number has none and must not occur."""
    return negate_if(gates, a[-1], a)[:-1]


def _multiply_school(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Bits:
    rest = gates.mask(b[0], a)
    low = [rest[0]]
    rest = [*rest[1:], 0]
    for bit in b[1:]:
        total, carry = add_carry(gates, rest, gates.mask(bit, a))
        low.append(total[0])
        rest = [*total[1:], carry]
    return low + rest


def _school_cost(width: int) -> int:
    return 2 * width * width - width


@cache
def _karatsuba_cost(width: int) -> int:
    half = (width + 1) // 2
    parts = (half, width - half, half + 1)
    products = sum(min(_school_cost(part), _karatsuba_cost(part)) for part in parts if part < width)
    return products + 2 * half + 2 * (2 * half + 2) + (2 * width - half)


def _multiply_karatsuba(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Bits:
    width, half = len(a), (len(a) + 1) // 2
    low, high = multiply(gates, a[:half], b[:half]), multiply(gates, a[half:], b[half:])
    folded = []
    for x in (a, b):
        total, carry = add_carry(gates, x[:half], extend(x[half:], half))
        folded.append([*total, carry])
    size = 2 * half + 2
    middle = multiply(gates, folded[0], folded[1])
    middle = subtract(gates, subtract(gates, middle, extend(low, size)), extend(high, size))
    upper = low[half:] + high
    # The middle product is below 2^(2 half + 1), and the sum below 2^(2 width): nothing is cut off.
    return low[:half] + add(gates, upper, extend(middle, 2 * width - half))


def multiply(gates: Gates, a: Sequence[Wire], b: Sequence[Wire]) -> Bits:
    """The whole product of two unsigned numbers, by Karatsuba's method where that saves ANDs."""
    if all(isinstance(bit, int) for bit in a):
        # The rows of a public factor's zeros are free, and Karatsuba's method would lose them.
        return _multiply_school(gates, b, a)
    if all(isinstance(bit, int) for bit in b):
        return _multiply_school(gates, a, b)
    if len(a) < len(b):
        a, b = b, a
    if len(a) == len(b) > 3 and _karatsuba_cost(len(a)) < _school_cost(len(a)):
        return _multiply_karatsuba(gates, a, b)
    return _multiply_school(gates, a, b)


def multiply_signed(gates: Gates, a: Sequence[Wire], b: Sequence[Wire], b_signed: bool = True) -> Bits:
    """The whole product of a two's complement `a` and `b`."""
    rest = gates.mask(b[0], a)
    low, rest = [rest[0]], [*rest[1:], rest[-1]]
    for j, bit in enumerate(b[1:], start=2):
        row, wide = gates.mask(bit, a), len(a) + 1
        step = subtract if b_signed and j == len(b) else add
        total = step(gates, extend(rest, wide, True), extend(row, wide, True))
        low.append(total[0])
        rest = total[1:]
    return low + rest


def square(gates: Gates, a: Sequence[Wire], width: int | None = None) -> Bits:
    """a * a (its low `width` bits); a_i a_j = a_j a_i halves the ANDs of a product."""
    full = 2 * len(a)
    width = full if width is None else width
    total: Bits = extend([], full)
    for i, bit in enumerate(a):
        row = [bit, 0, *gates.mask(bit, a[i + 1 :])]
        at, end = 2 * i, min(len(a) + i + 2, width)
        if at >= width:
            break
        # A partial sum of the rows up to i is below 2^(n + i + 2), so the carry ends there.
        total = total[:at] + add(gates, total[at:end], extend(row, end - at)) + total[end:]
    return extend(total, width)


def multiply_constant(gates: Gates, a: Sequence[Wire], factor: int, width: int) -> Bits:
    """a * factor modulo 2^width for an unsigned a, one addition per nonzero signed digit of `factor`."""
    total, digit_at, rest = constant(0, width), 0, factor
    while rest and digit_at < width:
        if rest & 1:
            digit = 2 - (rest & 3)
            row = extend(a, width - digit_at)
            step = add if digit > 0 else subtract
            total = total[:digit_at] + step(gates, total[digit_at:], row)
            rest -= digit
        rest, digit_at = rest >> 1, digit_at + 1
    return total


def divide(gates: Gates, numerator: Sequence[Wire], denominator: Sequence[Wire], quotient: int) -> Bits:
    """floor(numerator / denominator) with `quotient` bits, unsigned; the denominator must not be zero.

    Non-restoring: the sign of the remainder decides, by XOR, whether the next step adds or
    subtracts, so that a bit of the quotient costs one addition and no selection. The quotient
    must fit: the bits of the numerator above the lowest `quotient` must be below the denominator.
    """
    wide = len(denominator) + 1
    head = list(numerator[quotient:])
    if len(head) > wide:
        raise ValueError(f"a quotient of {quotient} bits cannot hold the result")
    remainder = extend(head, wide)
    positive: Wire = 1
    digits: Bits = []
    for position in reversed(range(quotient)):
        bit = numerator[position] if position < len(numerator) else 0
        shifted = [bit, *remainder[:-1]]
        change = [gates.xor(positive, d) for d in extend(denominator, wide)]
        remainder = add(gates, shifted, change, positive)
        positive = gates.not_(remainder[-1])
        digits.append(positive)
    return digits[::-1]


def square_root(gates: Gates, a: Sequence[Wire]) -> Bits:
    """floor(sqrt(a)) of an unsigned number with an even number of bits."""
    remainder: Bits = []
    root: Bits = []
    for position in reversed(range(0, len(a), 2)):
        remainder = [a[position], a[position + 1], *remainder]
        trial = [1, 0, *root]
        wide = len(trial) + 1
        difference, borrow = subtract_borrow(gates, extend(remainder, wide), extend(trial, wide))
        digit = gates.not_(borrow)
        # The remainder never exceeds twice the root, which bounds its width.
        remainder = gates.select(digit, difference, extend(remainder, wide))[: len(root) + 2]
        root = [digit, *root]
    return root


def shift_right(gates: Gates, a: Sequence[Wire], amount: Sequence[Wire]) -> Bits:
    """a >> amount for an unsigned a; shifting out everything gives zero."""
    result = list(a)
    for i, bit in enumerate(amount):
        moved = extend(result[1 << i :], len(result))
        result = gates.select(bit, moved, result)
    return result


def shift_left_to_top(gates: Gates, a: Sequence[Wire], amount: Sequence[Wire], keep: int) -> Bits:
    """The top `keep` bits of a << amount; large steps first, so that bits that fall below are left out."""
    result = list(a)
    for i in reversed(range(len(amount))):
        step = 1 << i
        result = gates.select(amount[i], ([0] * step + result)[: len(result)], result)
        result = result[-(keep + step - 1) :]
    return result


def leading_zeros(gates: Gates, a: Sequence[Wire]) -> tuple[Bits, Bits]:
    """a shifted left until its top bit is 1, and by how much (modulo 2^stages if a is zero)."""
    result, amount = list(a), []
    for i in reversed(range((len(a) - 1).bit_length())):
        step = 1 << i
        empty = gates.not_(gates.any_bit(result[-step:]))
        result = gates.select(empty, [0] * step + result[:-step], result)
        amount.append(empty)
    return result, amount[::-1]


def look_up(gates: Gates, index: Sequence[Wire], entries: Sequence[int], width: int) -> Bits:
    """entries[index], `width` bits wide; 2^k - 2 ANDs for k index bits, whatever the width.

    The ANDs make one wire per entry that is 1 where the index names it; every bit of the result
    is then a XOR of such wires, which is free.
    """
    chosen: Bits = [1]
    for bit in reversed(index):
        ones = [gates.and_(term, bit) for term in chosen]
        pairs = zip(chosen, ones, strict=True)
        chosen = [wire for term, one in pairs for wire in (gates.xor(term, one), one)]
    if len(entries) != len(chosen):
        raise ValueError(f"{len(entries)} entries for {len(index)} index bits")
    result: Bits = []
    for position in range(width):
        total: Wire = 0
        for term, entry in zip(chosen, entries, strict=True):
            if (entry >> position) & 1:
                total = gates.xor(total, term)
        result.append(total)
    return result


def reduce_lanes(gates: Gates, bits: Bits, combine: Callable[[Bits, Bits], Bits]) -> Bits:
    """All lanes combined into one by a balanced tree."""
    count = lane_count(bits)
    if count == 1:
        return bits
    half = count // 2
    result = combine(lanes(bits, slice(0, half)), lanes(bits, slice(half, 2 * half)))
    result = reduce_lanes(gates, result, combine)
    return combine(result, lanes(bits, slice(count - 1, count))) if count % 2 else result


def sum_lanes(gates: Gates, bits: Bits, signed: bool = False) -> Bits:
    """The sum over all lanes, wide enough for any input."""
    limit = len(bits) + (lane_count(bits) - 1).bit_length()

    def combine(a: Bits, b: Bits) -> Bits:
        width = min(max(len(a), len(b)) + 1, limit)
        return add(gates, extend(a, width, signed), extend(b, width, signed))

    return reduce_lanes(gates, bits, combine)


def any_lane(gates: Gates, bits: Bits) -> Bits:
    """Bit by bit, the OR over all lanes."""
    return reduce_lanes(gates, bits, lambda a, b: [gates.or_(x, y) for x, y in zip(a, b, strict=True)])
