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
from privit.program.graph import Graph
from privit.serve.model.attention import Observe, Rows, attention_weights, constant_weight, normalised

Values = Mapping[str, Array]


def class_token_attention(
    graph: Graph, layer: int, values: Values, x: Array, inverse: Array | None, observe: Observe | None = None
) -> Array:
    """Tokens (N, width) and their LayerNorm's factors (N, 1), if any, to the class token (1, width)."""
    at, heads, tokens = f"blocks.{layer}.", graph.heads(layer), x.shape[0]
    width = graph.spec.width // len(heads)
    reading = [i for i, head in enumerate(heads) if head.form != "constant"]
    rows: Rows = {}
    if reading:
        first = x[:1] if inverse is None else x[:1] * inverse[:1]
        q = first @ values[at + "q.weight"] + values[at + "q.bias"]
        scores = _scores(values[at + "k.weight"], q, x, inverse, len(reading), width)
        scored = {(h, heads[h].names[0]): scores[i : i + 1] for i, h in enumerate(reading)}
        exact = [value for (_, name), value in scored.items() if name == "softmax"]
        if observe is not None and exact:
            observe(f"{at}softmax", jnp.concatenate(exact))
        rows, totals = attention_weights(graph, layer, values, heads, scored)
    else:
        totals = {}
    for index, head in enumerate(heads):
        name = head.names[0]
        if BY_NAME[name].family == "constant":
            one = constant_weight(graph, layer, values, index, name)
            rows[index, name] = jnp.broadcast_to(one, (1, tokens))
    keys = [(index, head.names[0]) for index, head in enumerate(heads)]
    weights = jnp.concatenate([rows[key] for key in keys], axis=0)  # (heads, N)
    if not reading and inverse is None:
        # Every head weights all tokens alike, and the server folded their scale: one sum stands for all.
        mixed = weights[:, :1] * jnp.sum(x, axis=0, keepdims=True)
    else:
        mixed = (weights if inverse is None else weights * inverse.T) @ x
    mixed = jnp.concatenate([mixed, jnp.sum(weights, axis=1, keepdims=True)], axis=1)
    spread = mixed @ values[at + "v.weight"]  # (heads, width): each head needs its own columns
    parts = {key: spread[i : i + 1, i * width : (i + 1) * width] for i, key in enumerate(keys)}
    parts |= normalised(graph, layer, values, heads, parts, totals)
    joined = jnp.concatenate([parts[key] for key in keys], axis=1)
    return joined @ values[at + "out.weight"] + values[at + "out.bias"]


def _scores(weight: Array, q: Array, x: Array, inverse: Array | None, heads: int, width: int) -> Array:
    """Scores (heads, N) of one query row; the last column of `weight` is the bias of k."""
    blocks = [q[:, i * width : (i + 1) * width] for i in range(heads)]
    places = [((0, 0), (i * width, (heads - 1 - i) * width)) for i in range(heads)]
    spread = jnp.concatenate([jnp.pad(b, p) for b, p in zip(blocks, places, strict=True)])  # block by block
    turned = spread @ weight  # (heads, width of a token + 1)
    scores = turned[:, :-1] @ x.T
    return (scores if inverse is None else scores * inverse.T) + turned[:, -1:]
