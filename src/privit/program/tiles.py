"""How CHEETAH cuts a matrix product into ciphertexts, and into which rows a program cuts it before that.

The engine takes the tiles that send the fewest ciphertexts. Most of a product's time is in packing its
blocks, which it hardly weighs: at 50 rows two products of 8 and 42 rows take half the time of one, for
a fifth more bytes. So rows are cut where time saved is worth the bytes.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

POLYNOMIAL = 8192
"""Values that one ciphertext of CHEETAH holds (64-bit ring)."""


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
    height = np.arange(1, min(POLYNOMIAL, rows) + 1)[:, None]
    depth = 2 ** np.arange(min(inner, POLYNOMIAL).bit_length())
    row_blocks, inner_blocks = -(-rows // height), -(-inner // depth)
    width = np.minimum(columns, np.maximum(POLYNOMIAL // height // depth, 1))
    column_blocks = -(-columns // width)
    requests = np.minimum(row_blocks, column_blocks) * inner_blocks
    blocks = row_blocks * column_blocks
    responses = -(-blocks // depth)
    rotations = np.broadcast_to(-(-rows * columns // POLYNOMIAL) * depth, blocks.shape)
    price = 1000 * (requests + responses) + rotations + blocks * inner_blocks / 10
    # Of equal prices the engine takes the last.
    best = np.where(height * depth <= POLYNOMIAL, price, np.inf)[::-1, ::-1].argmin()
    at = np.unravel_index(price.size - 1 - best, price.shape)
    return Tiles(
        int(requests[at]),
        int(responses[at]),
        int((blocks * inner_blocks)[at]),
        int(blocks[at]),
        left_encrypted=bool((row_blocks <= column_blocks)[at]),
        single=False,
        rotations=int(rotations[at]),
    )


REQUEST, RESPONSE, PRODUCT, BLOCK, ROTATION = 10.4, 0.0, 0.15, 2.6, 0.5
"""Milliseconds of each part of a product on two cores; measured by `benchmarks/products.py`."""
REQUEST_BYTES, RESPONSE_BYTES = 185_000, 254_000
WORTH = 3.3
"""Megabytes that a second saved may cost. A LAN sends thirty times as many in that time, a WAN four times."""


MOST_CUT = 512
"""Rows above which no cut is sought: it takes too long, and there is little to gain."""


@cache
def row_pieces(rows: int, inner: int, columns: int) -> tuple[int, ...]:
    """The cheapest cut of a product's rows, in one or two pieces."""
    if rows > MOST_CUT:
        return (rows,)
    cuts = [(rows,), *((first, rows - first) for first in range(1, rows // 2 + 1))]
    return min(cuts, key=lambda cut: sum(_price(piece, inner, columns) for piece in cut))


@cache
def _price(rows: int, inner: int, columns: int) -> float:
    """A product's milliseconds, and those that its bytes are worth."""
    tiles = matmul_tiles(rows, inner, columns)
    computing = sum(
        each * count
        for each, count in zip((0.0, REQUEST, RESPONSE, PRODUCT, BLOCK, ROTATION), tiles.work(), strict=True)
    )
    sent = tiles.requests * REQUEST_BYTES + tiles.responses * RESPONSE_BYTES
    return computing + sent / 1e3 / WORTH
