"""Which rewrites a program uses, and where the cheaper of two ways is taken."""

from __future__ import annotations

from dataclasses import dataclass


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
