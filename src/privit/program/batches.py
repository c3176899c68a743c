"""Several images in one program: how their rows stand, and how an image's own products are computed.

Every row of a model, a token, a query or a sum, is there once for each image, the images of one row next to
each other: row r of image b is row r * images + b. So weights meet more rows in one product, functions of
values meet all images at once, and rounds do not grow with the images.

Only scores and what they weight belong to one image alone. The engine multiplies a batch of matrices one
after the other, so there images stand as blocks on the diagonal of one matrix, where that is cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from privit.errors import RequestError

TOGETHER: Mapping[str, int] = {"cheetah": 1, "aby3": 8, "semi2k-benchmark": 8}
"""How many images share a product of their own, by protocol; measured by `benchmarks/own_products.py`.

On aby3 a product costs what its result costs: blocks are free in bytes and save rounds. On semi2k-benchmark
they open zeros, which a round on a WAN outweighs. On cheetah the zeros are encrypted and multiplied as
well, and seconds are mostly computing, so each image has products of its own.
"""
MOST_IMAGES = 64
"""The largest batch that is compiled at all; memory grows with it."""


@dataclass(frozen=True)
class Batch:
    """How many images one run of a program answers, and how many share a product of their own."""

    images: int = 1
    together: int = 1

    @property
    def groups(self) -> tuple[int, ...]:
        """How many images are in each product of their own."""
        whole, rest = divmod(self.images, self.together)
        return (self.together,) * whole + ((rest,) if rest else ())


ONE = Batch()


def batch_for(protocol: str, images: int) -> Batch:
    """The batch of so many images on a protocol; that of one image is the same on all."""
    if not 1 <= images <= MOST_IMAGES:
        raise RequestError(
            f"a batch of {images} images was asked for", f"give a number from 1 to {MOST_IMAGES}"
        )
    return Batch(images, min(images, TOGETHER.get(protocol, 1)))
