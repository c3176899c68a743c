"""The rewrites that make a graph cheap under secret sharing, and the small functions behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

SLICE_LIMIT = 300
"""Pieces up to which rows are moved by static slices; beyond, one gather compiles faster."""


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


def product_bytes(rows: int, inner: int, columns: int) -> int:
    """Bytes that one party sends for a product of two secret matrices, as measured on SEMI2K.

    Both factors are opened under a mask (8 bytes a value); the truncation of the result takes 4 more.
    """
    return 8 * (rows * inner + inner * columns) + 4 * rows * columns


def merging_pays(tokens: int, merged: int, width: int, hidden: int) -> bool:
    """Whether `merged` of `tokens` should run through W2 W1 instead of W1 and then W2."""
    if merged == tokens:
        return True
    if merged == 0:
        return False
    apart = product_bytes(tokens, width, hidden) + product_bytes(tokens, hidden, width)
    rest = tokens - merged
    split = product_bytes(rest, width, hidden) + product_bytes(rest, hidden, width)
    return split + product_bytes(merged, width, width) < apart


def linear_pays(rows: int, tokens: int, head_width: int) -> bool:
    """Whether q (k^T v) sends less than (q k^T) v."""
    scores = product_bytes(rows, head_width, tokens) + product_bytes(rows, tokens, head_width)
    return (
        product_bytes(head_width, tokens, head_width) + product_bytes(rows, head_width, head_width) < scores
    )
