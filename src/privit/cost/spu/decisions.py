"""Where the graph takes the cheaper of two ways, as `serve/model/rewrites.py` decides it."""

from __future__ import annotations


def _product_bytes(rows: int, inner: int, columns: int) -> int:
    return 8 * (rows * inner + inner * columns) + 4 * rows * columns


def merging_pays(tokens: int, merged: int, width: int, hidden: int) -> bool:
    """Whether `merged` of `tokens` run through W2 W1 instead of W1 and then W2."""
    if merged in (0, tokens):
        return merged == tokens
    rest = tokens - merged
    apart = _product_bytes(tokens, width, hidden) + _product_bytes(tokens, hidden, width)
    split = _product_bytes(rest, width, hidden) + _product_bytes(rest, hidden, width)
    return split + _product_bytes(merged, width, width) < apart


def linear_pays(rows: int, tokens: int, head_width: int) -> bool:
    """Whether q (k^T v) sends less than (q k^T) v."""
    scores = _product_bytes(rows, head_width, tokens) + _product_bytes(rows, tokens, head_width)
    turned = _product_bytes(head_width, tokens, head_width) + _product_bytes(rows, head_width, head_width)
    return turned < scores
