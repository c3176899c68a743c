"""Along which quantities the cost of an operation grows, and how the engine cuts large ones into pieces."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

POLYNOMIAL = 8192
"""Values that one ciphertext of CHEETAH holds (64-bit ring)."""


def tree_levels(columns: int) -> int:
    """Comparisons one after the other in the engine's maximum: halves first, then what was left over."""
    return columns.bit_length() - 1 + columns.bit_count() - 1


def traffic_features(name: str, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """What the bytes of an operation are linear in."""
    if name.startswith("matmul"):
        rows, inner, columns = sizes
        return (1.0, rows * inner, inner * columns, rows * columns)
    if name == "max":
        rows, columns = sizes
        return (tree_levels(columns), rows * (columns - 1))
    return (1.0, sizes[0])


def round_features(name: str, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """What the send actions of an operation are linear in."""
    return (float(tree_levels(sizes[1])) if name == "max" else 1.0,)


def second_features(name: str, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """What the computing time of an operation is linear in."""
    if name.startswith("matmul"):
        rows, inner, columns = sizes
        return (1.0, rows * inner + inner * columns + rows * columns, rows * inner * columns)
    return traffic_features(name, sizes)


class Tiles(NamedTuple):
    """How CHEETAH cuts a matrix product into ciphertexts.

    `requests` are sent by the party that encrypts, `responses` by the other; a single response
    is sent without the coefficients that nobody reads. `blocks` products of ciphertexts are packed, which
    takes `rotations` of a ciphertext.
    """

    requests: int
    responses: int
    products: int
    blocks: int
    left_encrypted: bool
    single: bool
    rotations: int = 0

    def work(self) -> tuple[float, ...]:
        """What the time of a product is fitted on."""
        counts = (self.requests, self.responses, self.products, self.blocks, self.rotations)
        return (1.0, *(float(count) for count in counts))


@cache
def matmul_tiles(rows: int, inner: int, columns: int) -> Tiles:
    """The cheapest cut by the engine's own prices (libspu/mpc/cheetah/arith/matmat_prot.cc)."""
    if rows * inner * columns <= POLYNOMIAL:
        return Tiles(1, 1, 1, 1, left_encrypted=True, single=True)
    best, chosen = float("inf"), Tiles(0, 0, 0, 0, True, False)
    for height in range(1, min(POLYNOMIAL, rows) + 1):
        row_blocks, depth = -(-rows // height), 1
        while depth <= inner and height * depth <= POLYNOMIAL:
            inner_blocks = -(-inner // depth)
            column_blocks = -(-columns // min(columns, POLYNOMIAL // height // depth))
            requests = min(row_blocks, column_blocks) * inner_blocks
            blocks = row_blocks * column_blocks
            responses = -(-blocks // depth)
            rotations = -(-rows * columns // POLYNOMIAL) * depth
            price = 1000 * (requests + responses) + rotations + blocks * inner_blocks / 10
            if price <= best:
                left = row_blocks <= column_blocks
                best, chosen = (
                    price,
                    Tiles(requests, responses, blocks * inner_blocks, blocks, left, False, rotations),
                )
            depth *= 2
    return chosen
