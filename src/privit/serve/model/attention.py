"""Attention under a plan: each row by its own operator, rows of one operator side by side across heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from privit.program.graph import CONSTANT, LINEAR, NORMALISED, SQUARE, Graph, Head, short_form, sum_range
from privit.program.ranges import ScoreRange
from privit.serve.model.activations import RELU_SOFTMAX_EPSILON, TWO_QUAD_SHIFT
from privit.serve.model.approximations import short_reciprocal
from privit.serve.model.rewrites import merge_rows, take_rows

Values = Mapping[str, Array]
Key = tuple[int, str]
"""A head and an operator: the rows of that head that run it."""
Rows = dict[Key, Array]
Observe = Callable[[str, Array], None]


def attention(graph: Graph, layer: int, values: Values, x: Array, observe: Observe | None = None) -> Array:
    """Normalised tokens (N, width) to tokens (rows that leave the block, width)."""
    heads = graph.heads(layer)
    q, k, v = project(graph, layer, values, x)
    attended: Rows = {}
    if q:
        attended |= _by_scores(graph, layer, values, heads, q, k, v, observe)
    outputs = []
    for index, head in enumerate(heads):
        if head.form == "linear":
            attended[index, head.names[0]] = _linear(layer, values, index, head, q[index], k[index], v[index])
        for name, rows in head.groups:
            if name in CONSTANT:
                attended[index, name] = _constant(graph, layer, values, index, name, rows.size, v[index])
        parts = [attended[index, name] for name in head.names]
        outputs.append(merge_rows(parts, [rows for _, rows in head.groups]))
    joined = outputs[0] if len(outputs) == 1 else jnp.concatenate(outputs, axis=1)
    return joined @ values[f"blocks.{layer}.out.weight"] + values[f"blocks.{layer}.out.bias"]


def project(
    graph: Graph, layer: int, values: Values, x: Array
) -> tuple[dict[int, Array], dict[int, Array], list[Array]]:
    """q and k (rows, head width) by head, where the head reads them, and v of every head."""
    at, heads = f"blocks.{layer}.", graph.heads(layer)
    width = graph.spec.width // len(heads)
    reading = [i for i, head in enumerate(heads) if head.form != "constant"]
    weight, bias = values[at + "qkv.weight"], values[at + "qkv.bias"]
    if not reading:
        # Every head reads only the sum of its values: one row stands for all.
        x = jnp.sum(x, axis=0, keepdims=True)
        both = x @ weight + bias * graph.spec.tokens
        return {}, {}, jnp.split(both, len(heads), axis=1)
    if graph.rewrites.fused_qkv:
        both = x @ weight + bias
    else:
        size = len(reading) * width
        cuts = [c for c in (size, 2 * size) if c < weight.shape[1] - graph.spec.width + 1]
        parts = zip(jnp.split(weight, cuts, axis=1), jnp.split(bias, cuts), strict=True)
        both = jnp.concatenate([x @ w + b for w, b in parts], axis=1)
    if at + "q.weight" in values:
        q_all = x[: graph.query_rows(layer)] @ values[at + "q.weight"] + values[at + "q.bias"]
        k_all, v_all = both[:, : len(reading) * width], both[:, len(reading) * width :]
    else:
        size = len(reading) * width
        q_all, k_all, v_all = both[:, :size], both[:, size : 2 * size], both[:, 2 * size :]
    if not graph.rewrites.fold:
        q_all = q_all * (1 / math.sqrt(width))
    q = dict(zip(reading, jnp.split(q_all, len(reading), axis=1), strict=True))
    k = dict(zip(reading, jnp.split(k_all, len(reading), axis=1), strict=True))
    return q, k, jnp.split(v_all, len(heads), axis=1)


def side_by_side(rows: Rows, keys: Sequence[Key], function: Callable[[Array], Array]) -> Rows:
    """The function applied once to all these rows, so that heads share its rounds."""
    if not keys:
        return {}
    joined = jnp.concatenate([rows[key] for key in keys], axis=0) if len(keys) > 1 else rows[keys[0]]
    result = function(joined)
    cuts = np.cumsum([rows[key].shape[0] for key in keys])[:-1]
    return dict(zip(keys, jnp.split(result, cuts, axis=0), strict=True))


def _by_scores(
    graph: Graph,
    layer: int,
    values: Values,
    heads: Sequence[Head],
    q: Mapping[int, Array],
    k: Mapping[int, Array],
    v: Sequence[Array],
    observe: Observe | None,
) -> Rows:
    scoring = [i for i, head in enumerate(heads) if head.form == "scores"]
    rows: Rows = {}
    for index in scoring:
        for name, at in heads[index].groups:
            if name not in CONSTANT:
                rows[index, name] = take_rows(q[index], at)
    rows |= _scaled(graph, layer, values, heads, rows)
    scores = _per_head(rows, scoring, lambda index, x: x @ k[index].T)
    if observe is not None:
        exact = [value for (_, name), value in scores.items() if name == "softmax"]
        if exact:
            observe(f"blocks.{layer}.softmax", jnp.concatenate(exact))
    attended, totals = attention_weights(graph, layer, values, heads, scores)
    mixed = _per_head(attended, scoring, lambda index, x: x @ v[index])
    mixed |= normalised(graph, layer, values, heads, mixed, totals)
    return mixed | _unsigned(graph, layer, values, heads, mixed)


def _per_head(rows: Rows, heads: Sequence[int], function: Callable[[int, Array], Array]) -> Rows:
    out: Rows = {}
    for index in heads:
        keys = [key for key in rows if key[0] == index]
        out |= side_by_side(rows, keys, lambda x, i=index: function(i, x))  # type: ignore[misc]
    return out


def _scaled(graph: Graph, layer: int, values: Values, heads: Sequence[Head], rows: Rows) -> Rows:
    """The q rows whose scale the server could not fold, because their head also has rows of another kind."""
    at = f"blocks.{layer}.heads."
    out: Rows = {}
    public = {
        (index, name): graph.public_scale(layer, name) / graph.public_scale(layer, heads[index].folded or "")
        for index, name in rows
    }
    keys = [key for key, scale in public.items() if scale != 1.0]
    sizes = [rows[key].shape[0] for key in keys]
    if keys:
        column = np.repeat([public[key] for key in keys], sizes)[:, None].astype(np.float32)
        out |= side_by_side(rows, keys, lambda x: x * column)
    secret: dict[Key, Array] = {}
    for index, name in rows:
        head = heads[index]
        if name == "linear_attn" and head.folded != name:
            secret[index, name] = values[f"{at}{index}.linear_scale"]
        elif name == "quadratic_attn" and head.folded is None:
            secret[index, name] = values[f"{at}{index}.scale"]
        elif head.folded == "quadratic_attn" and name != "quadratic_attn":
            secret[index, name] = values[f"{at}{index}.unscale"]
    # A linear row in a head that is folded for a quadratic needs both.
    for index, name in secret:
        if name == "linear_attn" and heads[index].folded == "quadratic_attn":
            out[index, name] = (rows | out)[index, name] * values[f"{at}{index}.unscale"]
    if secret:
        column = jnp.concatenate(
            [jnp.broadcast_to(s, (rows[key].shape[0], 1)) for key, s in secret.items()], axis=0
        )
        out |= side_by_side(rows | out, list(secret), lambda x: x * column)
    return out


def attention_weights(
    graph: Graph, layer: int, values: Values, heads: Sequence[Head], scores: Rows
) -> tuple[Rows, Rows]:
    """Attention weights of every row, and for rows that must still be normalised what to divide by."""
    at = f"blocks.{layer}.heads."
    out: Rows = {}
    totals: Rows = {}
    shifted = dict(scores)
    for index, name in scores:
        if name == "quadratic_attn":
            shifted[index, name] = scores[index, name] + values[f"{at}{index}.shift"]
    out |= side_by_side(shifted, [key for key in scores if key[1] in SQUARE], jnp.square)
    for index, name in scores:
        if name == "quadratic_attn":
            out[index, name] = out[index, name] + values[f"{at}{index}.level"]
        elif name == "linear_attn":
            out[index, name] = scores[index, name] + values[f"{at}{index}.linear_level"]
        elif name in LINEAR:
            out[index, name] = scores[index, name]
    found = graph.scores(layer)
    functions: dict[str, Callable[[Array], Array]] = {
        "softmax": (lambda s: short_rows(s, found)) if found else generic_rows,
        "relu_softmax": lambda s: jnp.maximum(s, 0.0),
        "two_quad": lambda s: jnp.square(s + TWO_QUAD_SHIFT),
    }
    for name, function in functions.items():
        out |= side_by_side(scores, [key for key in scores if key[1] == name], function)
    for key in scores:
        if key[1] in NORMALISED:
            extra = RELU_SOFTMAX_EPSILON if key[1] == "relu_softmax" else 0.0
            totals[key] = jnp.sum(out[key], axis=-1, keepdims=True) + extra
            if not graph.rewrites.late_reciprocal:
                out[key] = out[key] / totals[key]
    return out, totals


def generic_rows(scores: Array) -> Array:
    """exp(s - max s): stable for any scores."""
    return jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))


def short_rows(scores: Array, found: ScoreRange) -> Array:
    """factor * exp(s - mean s) for scores in a public range, given times the scale of the form.

    No row needs its maximum: its mean, which costs next to nothing, keeps the exponentials in range.
    """
    tokens = scores.shape[-1]
    mean = jnp.sum(scores, axis=-1, keepdims=True) * (1 / tokens)
    return short_form(tokens, found)(scores - mean)


def normalised(
    graph: Graph, layer: int, values: Values, heads: Sequence[Head], mixed: Rows, totals: Rows
) -> Rows:
    """Rows after the values, times the reciprocal of their sum: head width products a row, not N."""
    keys = [key for key in mixed if key in totals]
    if not keys or not graph.rewrites.late_reciprocal:
        return {}
    found = graph.scores(layer)
    inverse: Rows = {}
    short = [key for key in keys if key[1] == "softmax" and found]
    if found and short:
        _, low, high = sum_range(graph.spec.tokens, found)
        inverse |= side_by_side(totals, short, short_reciprocal(low, high))
    inverse |= side_by_side(totals, [key for key in keys if key not in inverse], lambda t: 1.0 / t)
    signed = [key for key in keys if heads[key[0]].signed]
    if signed:
        sign = jnp.concatenate(
            [
                jnp.broadcast_to(values[f"blocks.{layer}.heads.{i}.sign"], inverse[i, n].shape)
                for i, n in signed
            ]
        )
        inverse |= side_by_side(inverse, signed, lambda x: x * sign)
    column = jnp.concatenate([inverse[key] for key in keys], axis=0)
    return side_by_side(mixed, keys, lambda x: x * column)


def _unsigned(graph: Graph, layer: int, values: Values, heads: Sequence[Head], mixed: Rows) -> Rows:
    """Rows of a head whose values carry a fitted sign that is not theirs."""
    out: Rows = {}
    done = ("quadratic_attn", *(NORMALISED if graph.rewrites.late_reciprocal else ()))
    for index, name in mixed:
        if heads[index].signed and name not in done:
            out[index, name] = mixed[index, name] * values[f"blocks.{layer}.heads.{index}.sign"]
    return out


def _linear(layer: int, values: Values, index: int, head: Head, q: Array, k: Array, v: Array) -> Array:
    """q (k^T v): the scores never exist. A constant part of the weights is one more column of k."""
    if "linear_attn" in head.names:
        level = values[f"blocks.{layer}.heads.{index}.linear_level"]
        k = jnp.concatenate([k, jnp.broadcast_to(level, (k.shape[0], 1))], axis=1)
        q = jnp.concatenate([q, jnp.ones((q.shape[0], 1), q.dtype)], axis=1)
    return q @ (k.T @ v)


def _constant(graph: Graph, layer: int, values: Values, index: int, name: str, rows: int, v: Array) -> Array:
    """One row, the sum of the values times a constant, repeated."""
    total = jnp.sum(v, axis=0, keepdims=True)
    if name == "uniform_attn":
        row = total * (1 / graph.spec.tokens)
    else:
        row = total * values[f"blocks.{layer}.heads.{index}.constant"]
    if graph.heads(layer)[index].signed:
        row = row * values[f"blocks.{layer}.heads.{index}.sign"]
    return lax.broadcast_in_dim(row[0], (rows, row.shape[1]), (1,))
