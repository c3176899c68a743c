"""The two gates every circuit is made of, and the backend that evaluates and counts them at once.

A wire is either a public bit (the Python int 0 or 1) or an array of shape (batch, lanes, ...): `batch`
independent runs of the same circuit, and `lanes` places of one vector that the same gates treat alike.
A gate on public bits costs nothing; a gate on arrays costs one AND per lane.
A number is a list of wires, least significant bit first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

Wire = Any
Bits = list[Wire]


class Gates(ABC):
    """XOR and AND with public bits folded away; a backend supplies the two gates on secret wires.

    `one` is the secret-side value that XORs to a negation.
    """

    one: Any

    @abstractmethod
    def xor_wires(self, a: Wire, b: Wire) -> Wire:
        """XOR of two secret wires."""

    @abstractmethod
    def and_wires(self, a: Wire, b: Wire) -> Wire:
        """AND of two secret wires."""

    def xor(self, a: Wire, b: Wire) -> Wire:
        """a XOR b."""
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            if isinstance(a, int):
                return a ^ b
            return self.xor_wires(a, self.one) if b else a
        return 0 if a is b else self.xor_wires(a, b)

    def and_(self, a: Wire, b: Wire) -> Wire:
        """a AND b."""
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            return a if b else 0
        return a if a is b else self.and_wires(a, b)

    def not_(self, a: Wire) -> Wire:
        """NOT a, which is free."""
        return self.xor(a, 1)

    def or_(self, a: Wire, b: Wire) -> Wire:
        """a OR b, at the price of one AND."""
        return self.xor(self.xor(a, b), self.and_(a, b))

    def any_bit(self, bits: Sequence[Wire]) -> Wire:
        """1 where at least one bit is 1."""
        result: Wire = 0
        for bit in bits:
            result = self.or_(result, bit)
        return result

    def all_bits(self, bits: Sequence[Wire]) -> Wire:
        """1 where every bit is 1."""
        result: Wire = 1
        for bit in bits:
            result = self.and_(result, bit)
        return result

    def mask(self, control: Wire, bits: Sequence[Wire]) -> Bits:
        """`bits` where `control` is 1, zero elsewhere."""
        return [self.and_(control, bit) for bit in bits]

    def select(self, control: Wire, then: Sequence[Wire], otherwise: Sequence[Wire]) -> Bits:
        """`then` where `control` is 1, `otherwise` elsewhere; one AND a bit."""
        return [self.xor(b, self.and_(control, self.xor(a, b))) for a, b in zip(then, otherwise, strict=True)]


class Plain(Gates):
    """Evaluates on numpy booleans and counts gates; the counts are those of one run of the batch."""

    one = np.True_

    def __init__(self) -> None:
        self.ands = 0
        self.xors = 0

    def xor_wires(self, a: Wire, b: Wire) -> Wire:
        """XOR on every lane."""
        result = a ^ b
        self.xors += result.shape[1]
        return result

    def and_wires(self, a: Wire, b: Wire) -> Wire:
        """AND on every lane."""
        result = a & b
        self.ands += result.shape[1]
        return result


def to_wires(values: np.ndarray, width: int) -> Bits:
    """Integers of shape (batch, lanes) as `width` wires, two's complement where negative."""
    pattern = np.ascontiguousarray(values).astype(np.int64).view(np.uint64)
    return [((pattern >> np.uint64(i)) & np.uint64(1)).astype(bool) for i in range(width)]


def from_wires(bits: Sequence[Wire], signed: bool = False) -> np.ndarray:
    """Integers (int64 if signed, else uint64) of shape (batch, lanes); the inverse of `to_wires`."""
    shape = np.broadcast_shapes((1, 1), *(bit.shape for bit in bits if not isinstance(bit, int)))
    total = np.zeros(shape, np.uint64)
    for i, bit in enumerate(bits):
        total = total | (np.asarray(bit, np.uint64) << np.uint64(i))
    if not signed:
        return total
    shift = np.uint64(64 - len(bits))
    return (total << shift).view(np.int64) >> shift.astype(np.int64)


def constant(value: int, width: int) -> Bits:
    """A public number as `width` public bits, two's complement where negative."""
    return [(value >> i) & 1 for i in range(width)]


def lanes(bits: Sequence[Wire], index: slice) -> Bits:
    """The same number at some of the lanes; choosing lanes is wiring and costs nothing."""
    return [bit if isinstance(bit, int) else bit[:, index] for bit in bits]


def lane_count(bits: Sequence[Wire]) -> int:
    """How many lanes a number has (1 if it is public)."""
    return max((bit.shape[1] for bit in bits if not isinstance(bit, int)), default=1)
