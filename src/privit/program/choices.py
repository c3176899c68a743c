"""Which rewrites a program uses, how many images it takes, and where the cheaper of two ways is taken.

Of several images, every row of a model, a token, a query or a sum, is there once for each, the images of one
row next to each other: row r of image b is row r * images + b. So weights meet more rows in one product,
functions of values meet all images at once, and rounds do not grow with the images. Only scores and what
they weight belong to one image alone. The engine multiplies a batch of matrices one after the other, so
there images stand as blocks on the diagonal of one matrix, where that is cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from privit.errors import RequestError
from privit.program.tiles import row_pieces


@dataclass(frozen=True)
class Rewrites:
    """Which rewrites a graph uses; all of them unless a test or a comparison turns one off.

    fold: what is linear is folded into the weights by the server, in the clear.
    fused_qkv: one matrix product for q, k and v.
    merge_mlp: tokens without a nonlinearity run through one merged matrix where that is cheaper.
    class_token_last: the last block computes only what the class token reads.
    linear_attention: heads whose rows are all linear in the scores never form them.
    slices: rows are moved by static slices and concatenation, never scattered.
    late_reciprocal: a row is normalised after it met the values, by its reciprocal sum.
    ranges: shorter exp, reciprocal and rsqrt where the public ranges allow them.
    """

    fold: bool = True
    fused_qkv: bool = True
    merge_mlp: bool = True
    class_token_last: bool = True
    linear_attention: bool = True
    slices: bool = True
    late_reciprocal: bool = True
    ranges: bool = True


TOGETHER: Mapping[str, int] = {"cheetah": 1, "aby3": 8, "semi2k-benchmark": 8}
"""How many images share a product of their own, by protocol; measured by `benchmarks/own_products.py`.

On aby3 a product costs what its result costs: blocks are free in bytes and save rounds. On semi2k-benchmark
they open zeros, which a round on a WAN outweighs. On cheetah the zeros are encrypted and multiplied as
well, and seconds are mostly computing, so each image has products of its own.
"""
CUT = frozenset({"cheetah"})
"""The protocols whose products are of ciphertexts, which `tiles.py` cuts."""
MOST_IMAGES = 64
"""The largest batch that is compiled at all; memory grows with it."""


@dataclass(frozen=True)
class Batch:
    """How many images one run of a program answers, how many share a product of their own, and whether
    products with weights are cut between rows where that is cheaper."""

    images: int = 1
    together: int = 1
    cut: bool = False

    @property
    def groups(self) -> tuple[int, ...]:
        """How many images are in each product of their own."""
        whole, rest = divmod(self.images, self.together)
        return (self.together,) * whole + ((rest,) if rest else ())

    def pieces(self, rows: int, inner: int, columns: int) -> tuple[int, ...]:
        """Into which rows a product with the server's weights is cut."""
        return row_pieces(rows, inner, columns) if self.cut and rows * inner * columns else (rows,)


ONE = Batch()


def batch_for(protocol: str, images: int) -> Batch:
    """The batch of so many images on a protocol."""
    if not 1 <= images <= MOST_IMAGES:
        raise RequestError(
            f"a batch of {images} images was asked for", f"give a number from 1 to {MOST_IMAGES}"
        )
    return Batch(images, min(images, TOGETHER.get(protocol, 1)), protocol in CUT)


def product_bytes(rows: int, inner: int, columns: int) -> int:
    """Bytes that one party sends for a product of two secret matrices, as measured on SEMI2K.

    Both factors are opened under a mask (8 bytes a value); the truncation of the result takes 4 more.
    """
    return 8 * (rows * inner + inner * columns) + 4 * rows * columns


def merging_pays(tokens: int, merged: int, width: int, hidden: int) -> bool:
    """Whether `merged` of `tokens` should run through W2 W1 instead of W1 and then W2."""
    if merged in (0, tokens):
        return merged == tokens
    apart = product_bytes(tokens, width, hidden) + product_bytes(tokens, hidden, width)
    rest = tokens - merged
    split = product_bytes(rest, width, hidden) + product_bytes(rest, hidden, width)
    return split + product_bytes(merged, width, width) < apart


def linear_pays(rows: int, tokens: int, head_width: int) -> bool:
    """Whether q (k^T v) sends less than (q k^T) v."""
    scores = product_bytes(rows, head_width, tokens) + product_bytes(rows, tokens, head_width)
    turned = product_bytes(head_width, tokens, head_width) + product_bytes(rows, head_width, head_width)
    return turned < scores
