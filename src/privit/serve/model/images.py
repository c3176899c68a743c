"""The images of a batch: row r of image b stands at row r * images + b, whatever a row is.

`program/choices.py` says why. Everything here is local to each party but the products, and with one image
all of it is what one would write without images, but for products that are cut.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from privit.program.choices import Batch


def rows_of_all(index: np.ndarray, images: int) -> np.ndarray:
    """The rows of every image that stand for these rows of one."""
    if images == 1:
        return index
    return (index[:, None] * images + np.arange(images)).reshape(-1)


def for_all(rows: Array, images: int) -> Array:
    """The same rows (n, width) for every image."""
    if images == 1:
        return rows
    return jnp.broadcast_to(rows[:, None], (rows.shape[0], images, *rows.shape[1:])).reshape(
        -1, *rows.shape[1:]
    )


def repeated(rows: Array, times: int) -> Array:
    """One row of each image (images, width) as so many rows, one after the other."""
    if times == 1:
        return rows
    return jnp.broadcast_to(rows[None], (times, *rows.shape)).reshape(-1, *rows.shape[1:])


def sum_of_rows(x: Array, images: int) -> Array:
    """The sum over the rows of each image (images, width)."""
    if images == 1:
        return jnp.sum(x, axis=0, keepdims=True)
    return jnp.sum(x.reshape(-1, images, x.shape[1]), axis=0)


def transposed(x: Array, images: int) -> Array:
    """Each image's matrix turned: (rows, columns) of every image to (columns, rows) of every image."""
    if images == 1:
        return x.T
    return x.reshape(-1, images, x.shape[1]).transpose(2, 1, 0).reshape(x.shape[1] * images, -1)


def product(batch: Batch, left: Array, right: Array) -> Array:
    """All images' rows times the server's weights, or weights times rows, in the pieces that are cheapest."""
    pieces = batch.pieces(left.shape[0], *right.shape)
    if len(pieces) == 1:
        return left @ right
    parts = jnp.split(left, np.cumsum(pieces)[:-1])
    return jnp.concatenate([part @ right for part in parts])


def left_product(batch: Batch, weight: Array, rows: Array) -> Array:
    """Each image's rows mixed by the server's weights: images are more columns of one product."""
    if batch.images == 1:
        return product(batch, weight, rows)
    return product(batch, weight, rows.reshape(weight.shape[1], -1)).reshape(-1, rows.shape[1])


def own_product(batch: Batch, left: Array, right: Array) -> Array:
    """The product of each image's own two matrices, (n, k) and (k, m) of every image to (n, m)."""
    if batch.images == 1:
        return left @ right
    first = left.reshape(-1, batch.images, left.shape[1])  # (n, images, k)
    second = right.reshape(-1, batch.images, right.shape[1])  # (k, images, m)
    if batch.together == 1:
        apart = jnp.matmul(first.swapaxes(0, 1), second.swapaxes(0, 1))
        return apart.swapaxes(0, 1).reshape(left.shape[0], right.shape[1])
    parts, start = [], 0
    for images in batch.groups:
        chosen = slice(start, start + images)
        parts.append(_as_blocks(first[:, chosen]) @ _stacked(second[:, chosen]))
        start += images
    if len(parts) == 1:
        return parts[0]
    shaped = [part.reshape(first.shape[0], -1, right.shape[1]) for part in parts]
    return jnp.concatenate(shaped, axis=1).reshape(left.shape[0], right.shape[1])


def _as_blocks(x: Array) -> Array:
    """Rows (n, images, k) as (n * images, images * k): each image's in its own columns, zeros elsewhere.

    A row of every image with `images` blanks behind it is read in rows that are one block shorter, so
    that each image begins one block later than the one before.
    """
    rows, images, inner = x.shape
    wide = images * inner
    padded = jnp.pad(x, ((0, 0), (0, 0), (0, wide))).reshape(rows, images * (inner + wide))
    return padded[:, : images * wide].reshape(rows * images, wide)


def _stacked(x: Array) -> Array:
    """Rows (k, images, m) as (images * k, m): one image below the other."""
    return x.swapaxes(0, 1).reshape(-1, x.shape[2])
