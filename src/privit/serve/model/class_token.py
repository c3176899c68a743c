"""Attention where only the class token leaves the block: no other token gets its q, k, v or LayerNorm.

With one query row a head and normalised tokens h_j = r_j x_j, the scores are
s_j = q . (W_k h_j + b_k) = r_j (W_k^T q) . x_j + q . b_k, and what they attend to is
sum_j a_j (W_v h_j + b_v) = W_v sum_j (a_j r_j) x_j + (sum_j a_j) b_v. So the LayerNorm's scale meets
N numbers a head instead of N tokens, and the weights meet one row instead of N.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from privit.operators import BY_NAME
from privit.program.choices import Batch
from privit.program.graph import Graph
from privit.serve.model.attention import Observe, Rows, attention_weights, constant_weight, normalised
from privit.serve.model.images import own_product, product, repeated, sum_of_rows, transposed

Values = Mapping[str, Array]


def class_token_attention(
    graph: Graph, layer: int, values: Values, x: Array, inverse: Array | None, observe: Observe | None = None
) -> Array:
    """Tokens (N, width) and their LayerNorm's factors (N, 1), if any, to the class token (1, width)."""
    batch, images = graph.batch, graph.batch.images
    at, heads, tokens = f"blocks.{layer}.", graph.heads(layer), graph.spec.tokens_in(layer)
    width = graph.spec.width // len(heads)
    reading = [i for i, head in enumerate(heads) if head.reads]
    rows: Rows = {}
    if reading:
        first = x[:images] if inverse is None else x[:images] * inverse[:images]
        q = product(batch, first, values[at + "q.weight"]) + values[at + "q.bias"]
        scores = _scores(batch, values[at + "k.weight"], q, x, inverse, len(reading), width)
        scored = {(h, heads[h].names[0]): scores[_rows(i, images)] for i, h in enumerate(reading)}
        exact = [value for (_, name), value in scored.items() if name == "softmax"]
        if observe is not None and exact:
            observe(f"{at}softmax", jnp.concatenate(exact))
        rows, totals = attention_weights(graph, layer, values, heads, scored, observe)
    else:
        totals = {}
    for index, head in enumerate(heads):
        name = head.names[0]
        if not head.reads:
            static = BY_NAME[name].family == "static"
            one = (
                values[f"{at}heads.{index}.static"]
                if static
                else constant_weight(graph, layer, values, index, name)
            )
            rows[index, name] = jnp.broadcast_to(one, (images, tokens))
    keys = [(index, head.names[0]) for index, head in enumerate(heads)]
    weights = jnp.concatenate([rows[key] for key in keys], axis=0)  # (heads, N)
    if graph.sums_values(layer) and inverse is None:
        # Every head weights all tokens alike, and the server folded their scale: one sum stands for all.
        mixed = weights[:, :1] * _to_heads(sum_of_rows(x, images), len(heads), images)
    else:
        scaled = weights if inverse is None else weights * _to_heads(inverse, len(heads), images, turn=True)
        mixed = own_product(batch, scaled, x)
    mixed = jnp.concatenate([mixed, jnp.sum(weights, axis=1, keepdims=True)], axis=1)
    spread = product(batch, mixed, values[at + "v.weight"])  # (heads, width): each head needs its own columns
    parts = {key: spread[_rows(i, images), i * width : (i + 1) * width] for i, key in enumerate(keys)}
    parts |= normalised(graph, layer, values, heads, parts, totals)
    joined = jnp.concatenate([parts[key] for key in keys], axis=1)
    return product(batch, joined, values[at + "out.weight"]) + values[at + "out.bias"]


def _rows(head: int, images: int) -> slice:
    """The rows of one head: the one query row of every image."""
    return slice(head * images, (head + 1) * images)


def _to_heads(x: Array, heads: int, images: int, turn: bool = False) -> Array:
    """One row of every image, or with `turn` one column, for every head; one image's row serves all."""
    rows = transposed(x, images) if turn else x
    return rows if images == 1 else repeated(rows, heads)


def _scores(
    batch: Batch, weight: Array, q: Array, x: Array, inverse: Array | None, heads: int, width: int
) -> Array:
    """Scores (heads, N) of one query row; the last column of `weight` is the bias of k."""
    blocks = [q[:, i * width : (i + 1) * width] for i in range(heads)]
    places = [((0, 0), (i * width, (heads - 1 - i) * width)) for i in range(heads)]
    spread = jnp.concatenate([jnp.pad(b, p) for b, p in zip(blocks, places, strict=True)])  # block by block
    turned = product(batch, spread, weight)  # (heads, width of a token + 1)
    scores = own_product(batch, turned[:, :-1], transposed(x, batch.images))
    if inverse is not None:
        scores = scores * _to_heads(inverse, heads, batch.images, turn=True)
    return scores + turned[:, -1:]
