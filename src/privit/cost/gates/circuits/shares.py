"""Additive shares at both ends of a circuit: recovering the value and masking the result again.

DELPHI (Mishra et al. 2020) keeps values as two additive shares. A circuit adds the two shares, applies
the function, and adds a fresh mask that only one party knows; what comes out is the other's new share.
Values are two's complement integers (fixed point). Modulo a prime, a negative v is stored as v + p.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from privit.cost.gates.circuits import integer
from privit.cost.gates.circuits.gates import Bits, Gates, constant
from privit.errors import RequestError

DELPHI_PRIME = 2138816513
"""A 31-bit prime as DELPHI's field has one: 2^31 - 2^23 - 2^18 + 1."""


@dataclass(frozen=True)
class Recovery(ABC):
    """How a value is shared; `width` is the number of bits of a share."""

    width: int

    @property
    @abstractmethod
    def modulus(self) -> int:
        """What shares are reduced by."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As it appears in the name of a profile."""

    @property
    def mask_width(self) -> int:
        """How many bits a prepared mask has."""
        return self.width

    @abstractmethod
    def recover(self, gates: Gates, first: Bits, second: Bits) -> Bits:
        """The value in two's complement, from the two shares as `open_shares` prepares them."""

    @abstractmethod
    def mask(self, gates: Gates, value: Bits, mask: Bits) -> Bits:
        """The value plus a mask prepared by `open_mask`, as the next share."""

    def share(self, values: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays that add up to `values` modulo the modulus, each uniform alone."""
        first = rng.integers(0, self.modulus, values.shape, dtype=np.int64)
        return first, (values - first) % self.modulus

    def open_shares(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the two parties feed into `recover`: their shares, shifted where that saves gates."""
        return first, second

    def open_mask(self, mask: np.ndarray) -> np.ndarray:
        """What the mask's owner feeds into `mask`."""
        return mask

    def signed(self, values: np.ndarray) -> np.ndarray:
        """Residues as the signed values they stand for."""
        values = values.astype(np.int64) % self.modulus
        return np.where(values > self.modulus // 2, values - self.modulus, values)


@dataclass(frozen=True)
class Ring(Recovery):
    """Shares modulo 2^width: an addition at each end, and the carry falls off."""

    @property
    def modulus(self) -> int:
        """What shares are reduced by."""
        return 1 << self.width

    @property
    def name(self) -> str:
        """As it appears in the name of a profile."""
        return f"ring{self.width}"

    def recover(self, gates: Gates, first: Bits, second: Bits) -> Bits:
        """The value in two's complement."""
        return integer.add(gates, first, second)

    def mask(self, gates: Gates, value: Bits, mask: Bits) -> Bits:
        """The value plus a prepared mask."""
        return integer.add(gates, integer.extend(value, self.width, signed=True), mask)

    def signed(self, values: np.ndarray) -> np.ndarray:
        """Residues as the signed values they stand for."""
        values = values.astype(np.int64) % self.modulus
        return np.where(values >= self.modulus // 2, values - self.modulus, values)


@dataclass(frozen=True)
class Prime(Recovery):
    """Shares modulo a prime of `width` bits.

    One party adds half of the prime to its share beforehand, so that the reduced sum is the value
    plus a public offset and no comparison is needed to find the sign; the mask's owner does the
    like, so that value plus mask is never negative.
    """

    prime: int = DELPHI_PRIME

    def __post_init__(self) -> None:
        if self.prime.bit_length() != self.width:
            raise RequestError(f"{self.prime} does not have {self.width} bits", "give a prime of that size")

    @property
    def modulus(self) -> int:
        """What shares are reduced by."""
        return self.prime

    @property
    def name(self) -> str:
        """As it appears in the name of a profile."""
        return f"prime{self.width}"

    @property
    def _half(self) -> int:
        return self.prime // 2

    def open_shares(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shares, the second moved up by half of the prime."""
        return first, (second + self._half) % self.prime

    def open_mask(self, mask: np.ndarray) -> np.ndarray:
        """The mask, from half of the prime on."""
        return (mask - self._half) % self.prime + self._half

    @property
    def mask_width(self) -> int:
        """A bit more than a share has."""
        return self.width + 1

    def _subtract_chosen(self, gates: Gates, total: Bits, extra: int) -> Bits:
        """total mod prime, less `extra`, for a total below twice the prime.

        Whether the prime must go is one wire, and the number to subtract has that wire or its
        negation wherever its two values differ: choosing it is free.
        """
        below = integer.less_than(gates, total, constant(self.prime, self.width + 1))
        small, large = constant(extra, self.width), constant(self.prime + extra, self.width)
        chosen = [
            gates.xor(x, gates.and_(gates.not_(below), x ^ y)) for x, y in zip(small, large, strict=True)
        ]
        return integer.subtract(gates, total[: self.width], chosen)

    def recover(self, gates: Gates, first: Bits, second: Bits) -> Bits:
        """The value in two's complement."""
        total, carry = integer.add_carry(gates, first, second)
        return self._subtract_chosen(gates, [*total, carry], self._half)

    def mask(self, gates: Gates, value: Bits, mask: Bits) -> Bits:
        """The value plus a prepared mask."""
        wide = integer.extend(value, self.mask_width, signed=True)
        return self._subtract_chosen(gates, integer.add(gates, wide, mask), 0)


RECOVERIES: dict[str, Recovery] = {r.name: r for r in (Ring(32), Prime(31))}
