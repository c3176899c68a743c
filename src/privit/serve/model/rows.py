"""Rows of public places taken apart and put together again, locally at each party."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

SLICE_LIMIT = 300
"""Pieces up to which rows are moved by static slices; beyond, one gather compiles faster."""


def runs_of(index: np.ndarray) -> list[tuple[int, int]]:
    """The ascending runs of consecutive numbers in `index`, each as (start, stop)."""
    if index.size == 0:
        return []
    breaks = np.flatnonzero(np.diff(index) != 1) + 1
    parts = np.split(index, breaks)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def take_rows(x: Array, index: np.ndarray) -> Array:
    """Rows of `x` in the order of `index`, local to each party."""
    pieces = runs_of(index)
    if pieces == [(0, x.shape[0])]:
        return x
    if len(pieces) > SLICE_LIMIT:
        return gather_rows(x, index)
    parts = [lax.slice_in_dim(x, start, stop, axis=0) for start, stop in pieces]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=0)


def gather_rows(x: Array, index: np.ndarray) -> Array:
    """Rows of `x` by one gather with a constant index that is promised to be in bounds."""
    return x.at[index].get(mode="promise_in_bounds", unique_indices=True)


def by_groups(
    x: Array, groups: Sequence[tuple[np.ndarray, Callable[[Array], Array]]], scatter: bool = False
) -> Array:
    """Each function applied to its own rows of `x`; the groups partition the rows.

    No row is computed twice and blended. With `scatter`, rows are written back the
    way the paper's code does it, which costs time for the same bytes.
    """
    if len(groups) == 1:
        return groups[0][1](x) if np.array_equal(groups[0][0], np.arange(x.shape[0])) else _one(x, groups[0])
    if scatter:
        results = [function(x[index]) for index, function in groups]
        out = jnp.zeros((x.shape[0], *results[0].shape[1:]), x.dtype)
        for (index, _), result in zip(groups, results, strict=True):
            out = out.at[index].set(result)
        return out
    parts = [function(take_rows(x, index)) for index, function in groups]
    return merge_rows(parts, [index for index, _ in groups])


def merge_rows(parts: Sequence[Array], indices: Sequence[np.ndarray]) -> Array:
    """Rows put where `indices` says, as slices and one concatenation; the inverse of taking them apart."""
    order = np.concatenate(indices)
    inverse = np.empty(order.size, dtype=np.int64)
    inverse[order] = np.arange(order.size)
    joined = parts[0] if len(parts) == 1 else jnp.concatenate(list(parts), axis=0)
    return take_rows(joined, inverse)


def _one(x: Array, group: tuple[np.ndarray, Callable[[Array], Array]]) -> Array:
    index, function = group
    return merge_rows([function(take_rows(x, index))], [index])
