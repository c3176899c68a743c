"""Attention under a plan: each row by its own operator, rows of one operator side by side across heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from privit.operators import BY_NAME
from privit.program.forms import score_exp, sum_reciprocal
from privit.program.graph import Graph
from privit.program.guard import divides
from privit.program.heads import Head, Key, public_factors, secret_factors
from privit.program.ranges import GUARD
from privit.serve.model.activations import NUMERATORS
from privit.serve.model.images import (
    for_all,
    left_product,
    own_product,
    product,
    repeated,
    rows_of_all,
    sum_of_rows,
    transposed,
)
from privit.serve.model.rows import merge_rows, take_rows

Values = Mapping[str, Array]
Rows = dict[Key, Array]
Observe = Callable[[str, Array], None]


def attention(graph: Graph, layer: int, values: Values, x: Array, observe: Observe | None = None) -> Array:
    """Normalised tokens (N, width) to tokens (rows that leave the block, width)."""
    if graph.mixes_tokens(layer):
        return _mixed_tokens(graph, layer, values, x)
    heads = graph.heads(layer)
    q, k, v = project(graph, layer, values, x)
    attended: Rows = {}
    if q:
        attended |= _by_scores(graph, layer, values, heads, q, k, v, observe)
    outputs = []
    for index, head in enumerate(heads):
        if head.form == "linear":
            attended[index, head.names[0]] = _linear(
                graph, layer, values, index, q[index], k[index], v[index]
            )
        for name, rows in head.groups:
            if BY_NAME[name].family == "constant":
                attended[index, name] = _constant(graph, layer, values, index, name, rows.size, v[index])
            elif BY_NAME[name].family == "static":
                weight = values[f"blocks.{layer}.heads.{index}.static"]
                attended[index, name] = left_product(graph.batch, weight, v[index])
        parts = [attended[index, name] for name in head.names]
        places = [rows_of_all(rows, graph.batch.images) for _, rows in head.groups]
        outputs.append(merge_rows(parts, places))
    joined = outputs[0] if len(outputs) == 1 else jnp.concatenate(outputs, axis=1)
    at = f"blocks.{layer}.out."
    return product(graph.batch, joined, values[at + "weight"]) + values[at + "bias"]


def project(
    graph: Graph, layer: int, values: Values, x: Array
) -> tuple[dict[int, Array], dict[int, Array], list[Array]]:
    """q and k (rows, head width) by head, where the head reads them, and v of every head."""
    at, heads = f"blocks.{layer}.", graph.heads(layer)
    width = graph.spec.width // len(heads)
    reading = [i for i, head in enumerate(heads) if head.reads]
    weight, bias = values[at + "qkv.weight"], values[at + "qkv.bias"]
    if graph.sums_values(layer):
        # Every head reads only the sum of its values: one row stands for all.
        times = x.shape[0] // graph.batch.images
        both = product(graph.batch, sum_of_rows(x, graph.batch.images), weight) + bias * times
        return {}, {}, jnp.split(both, len(heads), axis=1)
    if graph.rewrites.fused_qkv or not reading:
        both = product(graph.batch, x, weight) + bias
    else:
        size = len(reading) * width
        cuts = [c for c in (size, 2 * size) if c < weight.shape[1] - graph.spec.width + 1]
        parts = zip(jnp.split(weight, cuts, axis=1), jnp.split(bias, cuts), strict=True)
        both = jnp.concatenate([product(graph.batch, x, w) + b for w, b in parts], axis=1)
    if at + "q.weight" in values:
        rows = x[: graph.query_rows(layer) * graph.batch.images]
        q_all = product(graph.batch, rows, values[at + "q.weight"]) + values[at + "q.bias"]
        k_all, v_all = both[:, : len(reading) * width], both[:, len(reading) * width :]
    elif not reading:
        return {}, {}, jnp.split(both, len(heads), axis=1)
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
        for name, at in heads[index].scored.items():
            rows[index, name] = take_rows(q[index], rows_of_all(at, graph.batch.images))
    rows |= _scaled(graph, layer, values, heads, rows)
    batch = graph.batch
    turned = {index: transposed(k[index], batch.images) for index in scoring}
    scores = _per_head(rows, scoring, lambda index, x: own_product(batch, x, turned[index]))
    if observe is not None:
        exact = [value for (_, name), value in scores.items() if name == "softmax"]
        if exact:
            observe(f"blocks.{layer}.softmax", jnp.concatenate(exact))
    attended, totals = attention_weights(graph, layer, values, heads, scores, observe)
    mixed = _per_head(attended, scoring, lambda index, x: own_product(batch, x, v[index]))
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
    public = public_factors(heads, lambda name: graph.public_scale(layer, name))
    if public:
        sizes = [rows[key].shape[0] for key in public]
        column = np.repeat(list(public.values()), sizes)[:, None].astype(np.float32)
        out |= side_by_side(rows, list(public), lambda x: x * column)
    secret = secret_factors(heads)
    for (index, name), (*first, _) in secret.items():
        for factor in first:
            out[index, name] = (rows | out)[index, name] * values[f"{at}{index}.{factor}"]
    if secret:
        last = [
            jnp.broadcast_to(values[f"{at}{key[0]}.{factors[-1]}"], (rows[key].shape[0], 1))
            for key, factors in secret.items()
        ]
        secrets = jnp.concatenate(last, axis=0)
        out |= side_by_side(rows | out, list(secret), lambda x: x * secrets)
    return out


def attention_weights(
    graph: Graph,
    layer: int,
    values: Values,
    heads: Sequence[Head],
    scores: Rows,
    observe: Observe | None = None,
) -> tuple[Rows, Rows]:
    """Attention weights of every row, and for rows that must still be normalised what to divide by."""
    at = f"blocks.{layer}.heads."
    out: Rows = {}
    totals: Rows = {}
    entries = {key: BY_NAME[key[1]] for key in scores}
    shifted = dict(scores)
    for (index, name), entry in entries.items():
        if entry.family == "square" and entry.fitted:
            shifted[index, name] = scores[index, name] + values[f"{at}{index}.shift"]
    squares = [key for key, entry in entries.items() if entry.family == "square"]
    out |= side_by_side(shifted, squares, jnp.square)
    _watch_sums(observe, layer, "squares", [out[key] for key in squares])
    for key, entry in entries.items():
        if entry.family == "square" and entry.fitted:
            out[key] = out[key] + values[f"{at}{key[0]}.level"]
        elif entry.family == "linear":
            out[key] = scores[key] + values[f"{at}{key[0]}.linear_level"] if entry.fitted else scores[key]
    for name in NUMERATORS:
        keys = [key for key in scores if key[1] == name]
        out |= side_by_side(scores, keys, _numerator(graph, layer, name, observe))
    for key, entry in entries.items():
        if entry.family == "normalised":
            totals[key] = jnp.sum(out[key], axis=-1, keepdims=True) + entry.epsilon
            if not graph.rewrites.late_reciprocal:
                out[key] = out[key] / totals[key]
    _watch_sums(observe, layer, "sums", [total for key, total in totals.items() if not divides(key[1])])
    _watch_sums(observe, layer, "divisors", [total for key, total in totals.items() if divides(key[1])])
    return out, totals


def _watch_sums(observe: Observe | None, layer: int, name: str, rows: Sequence[Array]) -> None:
    """Shows the guard the sums of these rows; the parties need not talk for them."""
    if observe is not None and rows:
        sums = [jnp.sum(row, axis=-1) for row in rows]
        observe(f"{GUARD}blocks.{layer}.{name}", jnp.concatenate(sums))


def _numerator(
    graph: Graph, layer: int, name: str, observe: Observe | None = None
) -> Callable[[Array], Array]:
    """The positive function of scores whose sum along a row it is divided by later."""
    scores, at = graph.scores(layer), f"{GUARD}blocks.{layer}."

    def exact(rows: Array) -> Array:
        if scores is None:
            if observe is not None:
                # The compiler finds the same maximum in the function itself.
                observe(at + "depth", jnp.max(rows, axis=-1, keepdims=True) - rows)
            return NUMERATORS["softmax"](rows)
        centred = rows - row_mean(rows)
        if observe is not None:
            observe(at + "centred", centred)
        return score_exp(rows.shape[-1], scores)(centred, jnp)

    return exact if name == "softmax" else NUMERATORS[name]


def row_mean(scores: Array) -> Array:
    """What a short exp takes off each row (rows, 1).

    No row needs its maximum: its mean, which costs next to nothing, keeps the exponentials in range.
    """
    return jnp.sum(scores, axis=-1, keepdims=True) * (1 / scores.shape[-1])


def normalised(
    graph: Graph, layer: int, values: Values, heads: Sequence[Head], mixed: Rows, totals: Rows
) -> Rows:
    """Rows after the values, times the reciprocal of their sum: head width products a row, not N."""
    keys = [key for key in mixed if key in totals]
    if not keys or not graph.rewrites.late_reciprocal:
        return {}
    scores = graph.scores(layer)
    inverse: Rows = {}
    if scores:
        reciprocal = sum_reciprocal(graph.spec.tokens_in(layer), scores)
        short = [key for key in keys if key[1] == "softmax"]
        inverse |= side_by_side(totals, short, lambda total: reciprocal(total, jnp))
    inverse |= side_by_side(totals, [key for key in keys if key not in inverse], lambda t: 1.0 / t)
    signed = [key for key in keys if heads[key[0]].quadratic]
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
    for index, name in mixed:
        done = BY_NAME[name].family == "normalised" and graph.rewrites.late_reciprocal
        if heads[index].quadratic not in (None, name) and not done:
            out[index, name] = mixed[index, name] * values[f"blocks.{layer}.heads.{index}.sign"]
    return out


def _linear(graph: Graph, layer: int, values: Values, index: int, q: Array, k: Array, v: Array) -> Array:
    """q (k^T v): the scores never exist. A constant part of the weights is one more column of k."""
    if BY_NAME[graph.heads(layer)[index].names[0]].fitted:
        level = values[f"blocks.{layer}.heads.{index}.linear_level"]
        k = jnp.concatenate([k, jnp.broadcast_to(level, (k.shape[0], 1))], axis=1)
        q = jnp.concatenate([q, jnp.ones((q.shape[0], 1), q.dtype)], axis=1)
    batch = graph.batch
    return own_product(batch, q, own_product(batch, transposed(k, batch.images), v))


def _mixed_tokens(graph: Graph, layer: int, values: Values, x: Array) -> Array:
    """Every head's weights are the server's own: tokens are mixed first, and v and output are one matrix."""
    at, heads = f"blocks.{layer}.", len(graph.heads(layer))
    mixed = left_product(graph.batch, values[at + "mix.weight"], x)  # (heads rows, width)
    side = mixed if heads == 1 else jnp.concatenate(jnp.split(mixed, heads), axis=1)
    bias = for_all(values[at + "out.bias"], graph.batch.images)
    return product(graph.batch, side, values[at + "out.weight"]) + bias


def _constant(graph: Graph, layer: int, values: Values, index: int, name: str, rows: int, v: Array) -> Array:
    """One row, the sum of the values times a constant, repeated."""
    images = graph.batch.images
    total = sum_of_rows(v, images)
    row = total * constant_weight(graph, layer, values, index, name)
    if graph.heads(layer)[index].quadratic:
        row = row * values[f"blocks.{layer}.heads.{index}.sign"]
    if images == 1:
        return lax.broadcast_in_dim(row[0], (rows, row.shape[1]), (1,))
    return repeated(row, rows)


def constant_weight(graph: Graph, layer: int, values: Values, index: int, name: str) -> Array | float:
    """What a constant operator weights every token with."""
    entry = BY_NAME[name]
    if entry.fitted:
        return values[f"blocks.{layer}.heads.{index}.constant"]
    return entry.coefficients[0] / graph.spec.tokens_in(layer)
