"""What the server works out in the clear before any query, so that the program need not.

Everything linear meets here: LayerNorm's gamma and beta, its mean (every weight that writes to the residual
stream is centred, so the stream has mean zero), LayerScale, 1/sqrt(head width), 1/N, the factors of
short approximations, affine stand-ins, and the shift, scale and sign of fitted quadratics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

import jax.numpy as jnp
import numpy as np
from jax import Array

from privit.operators import BY_NAME
from privit.program.forms import GELU_SCALE
from privit.program.graph import Graph, MlpGroup
from privit.program.heads import Head
from privit.serve.model.norms import gains, levels, norm_parameters

# Fitted curvatures c below these are raised to them. Raising one changes the polynomial by c x^2; not raising
# it makes the shift of the completed square, slope / (2 sqrt(c)), so large that fixed point loses
# slope / sqrt(c) x 2^-18. Both are about equal here, at the slopes and inputs that fits give (0.5 and 3 for a
# channel, 0.02 and 5 for a score): 3e-4 of an activation, 6e-5 of an attention weight.
CHANNEL_CURVATURE = 3e-5
SCORE_CURVATURE = 3e-6

Weights = Mapping[str, Array]
Values = dict[str, Array]


def fold_weights(graph: Graph, weights: Weights) -> Values:
    """The program's server inputs by name; matrices stand as (in, out).

    Arrays of numpy are computed with at once; jax, which would compile every step first, gives shapes.
    """
    values = _embedding(graph, weights) | _norms(graph, weights)
    for layer in range(graph.spec.depth):
        values |= _attention(graph, layer, weights) | _mlp(graph, layer, weights)
        if graph.block(layer).pool:
            values[f"blocks.{layer}.pool.weight"] = weights[f"blocks.{layer}.pool.weight"]
        if not graph.rewrites.fold:
            values |= _unfolded(graph, layer, weights)
    return values | _head(graph, weights)


def _embedding(graph: Graph, weights: Weights) -> Values:
    xp, first, position = _module(weights), int(graph.spec.class_token), weights["position"]
    added = xp.broadcast_to(weights["patch.bias"], position[first:].shape)
    if first:
        added = xp.concatenate([weights["class_token"].reshape(1, -1), added])
    return {
        "embed.weight": _centred(graph, weights["patch.weight"].T),
        "embed.offset": _centred(graph, position + added),
    }


def _module(weights: Weights) -> ModuleType:
    """What computes with these weights: numpy with arrays, jax where only shapes are asked for."""
    return np if isinstance(weights["position"], np.ndarray) else jnp


def _centred(graph: Graph, matrix: Array) -> Array:
    return matrix - matrix.mean(axis=-1, keepdims=True) if graph.rewrites.fold else matrix


def _behind_norm(
    graph: Graph, norm: str, weight: Array, bias: Array, weights: Weights
) -> tuple[Array, Array]:
    """A linear layer (out, in) with the LayerNorm before it folded in, as (in, out) and bias."""
    if not graph.rewrites.fold:
        return weight.T, bias
    gamma, beta = weights[f"{norm}.weight"], weights[f"{norm}.bias"]
    gain = gains(graph, weights)[norm]
    return (weight * gamma).T * gain.get("patches", gain.get("class")), bias + weight @ beta


def _norms(graph: Graph, weights: Weights) -> Values:
    """The few secret numbers that LayerNorms need beside the weights, each (1, 1)."""
    values: Values = {}
    gain = gains(graph, weights)
    for index, (name, norm) in enumerate(graph.norms.items()):
        sides = ("class", "patches") if norm.split else ("class" if norm.only_class_token else "patches",)
        if graph.rewrites.fold:
            values |= levels(graph, weights, norm, index)
            if norm.split:
                values[f"{name}.ratio"] = (gain[name]["class"] / gain[name]["patches"]).reshape(1, 1)
            continue
        for place, (entry, side) in enumerate(zip(norm.groups, sides, strict=True)):
            given = norm_parameters(graph, index, side, entry, weights)
            values |= {f"{name}.{place}.{p}": value.reshape(1, 1) for p, value in given.items()}
    return values


def _before_residual(
    graph: Graph, layer: int, which: int, weight: Array, bias: Array, weights: Weights
) -> tuple[Array, Array]:
    """A linear layer (out, in) with LayerScale folded in and its output centred, as (in, out) and bias."""
    if not graph.rewrites.fold:
        return weight.T, bias
    if graph.block(layer).layer_scale:
        scale = weights[f"blocks.{layer}.scale{which}"]
        weight, bias = weight * scale[:, None], bias * scale
    return _centred(graph, weight.T), _centred(graph, bias)


def _unfolded(graph: Graph, layer: int, weights: Weights) -> Values:
    at = f"blocks.{layer}."
    names = [at + f"norm{i}.{part}" for i in (1, 2) for part in ("weight", "bias")]
    if graph.block(layer).layer_scale:
        names += [at + "scale1", at + "scale2"]
    return {name: weights[name] for name in names}


def _attention(graph: Graph, layer: int, weights: Weights) -> Values:
    xp, at, heads = _module(weights), f"blocks.{layer}.", graph.heads(layer)
    width = graph.spec.width // len(heads)
    weight, bias = _behind_norm(
        graph, at + "norm1", weights[at + "qkv.weight"], weights[at + "qkv.bias"], weights
    )
    q, k, v = ((w, b) for w, b in zip(xp.split(weight, 3, 1), xp.split(bias, 3), strict=True))
    q_scale, v_sign = [], []
    values: Values = {}
    for index, head in enumerate(heads):
        q_scale.append(
            _q_scale(graph, layer, index, head, weights) * (width**-0.5 if graph.rewrites.fold else 1)
        )
        v_sign.append(_v_sign(graph, layer, index, head, weights))
        values |= _head_parameters(graph, layer, index, head, weights)
    # (heads,) to one value per column.
    q_columns, v_columns = (xp.repeat(xp.stack(x), width) for x in (q_scale, v_sign))
    q = (q[0] * q_columns, q[1] * q_columns)
    v = (v[0] * v_columns, v[1] * v_columns)
    read = np.flatnonzero(np.repeat([h.reads for h in heads], width))
    parts = [(x[0][:, read], x[1][read]) for x in (q, k)] + [v]
    out = _before_residual(graph, layer, 1, weights[at + "out.weight"], weights[at + "out.bias"], weights)
    if graph.mixes_tokens(layer):
        return _mixed_tokens(graph, layer, parts[2], out, weights)
    values |= {at + "out.weight": out[0], at + "out.bias": out[1]}
    if graph.reads_one_row(layer):
        return values | _one_row(xp, at, *parts)
    if graph.only_class_token(layer) or read.size == 0:
        values |= {at + "q.weight": parts[0][0], at + "q.bias": parts[0][1]} if read.size else {}
        parts = parts[1:]
    return values | {
        at + "qkv.weight": xp.concatenate([p[0] for p in parts], 1),
        at + "qkv.bias": xp.concatenate([p[1] for p in parts]),
    }


def _mixed_tokens(
    graph: Graph, layer: int, v: tuple[Array, Array], out: tuple[Array, Array], weights: Weights
) -> Values:
    """What mixes tokens, all heads below each other; v and output as one matrix; a bias for each row."""
    xp, at, heads = _module(weights), f"blocks.{layer}.", len(graph.heads(layer))
    mixing = weights[at + "softmax.static_attn.w"][:, : graph.query_rows(layer)]  # (heads, rows, N)
    behind = xp.split(out[0], heads)
    joined = [w @ o for w, o in zip(xp.split(v[0], heads, 1), behind, strict=True)]
    biases = xp.stack([b @ o for b, o in zip(xp.split(v[1], heads), behind, strict=True)])  # (heads, width)
    return {
        at + "mix.weight": mixing.reshape(-1, mixing.shape[-1]),
        at + "out.weight": xp.concatenate(joined),
        # A row's weights need not add up to 1, so each has a bias of its own.
        at + "out.bias": mixing.sum(-1).T @ biases + out[1],
    }


def _one_row(
    xp: ModuleType, at: str, q: tuple[Array, Array], k: tuple[Array, Array], v: tuple[Array, Array]
) -> Values:
    """The weights of `class_token.py`: k turned around, with biases as one more column and row."""
    found = {at + "v.weight": xp.concatenate([v[0], v[1][None]], axis=0)}
    if q[1].size:
        found |= {
            at + "q.weight": q[0],
            at + "q.bias": q[1],
            at + "k.weight": xp.concatenate([k[0].T, k[1][:, None]], axis=1),
        }
    return found


def _fitted(layer: int, index: int, name: str, weights: Weights) -> list[Array]:
    """One head's coefficients of a fitted polynomial, highest power first."""
    return [weights[f"blocks.{layer}.softmax.{name}.{p}"][index] for p in BY_NAME[name].parameters]


def _curvature(graph: Graph, layer: int, index: int, name: str, weights: Weights) -> tuple[Array, Array]:
    """Root of the size of a fitted square's first coefficient, and its sign."""
    xp, (c2, *_) = _module(weights), _fitted(layer, index, name, weights)
    size = xp.maximum(xp.abs(c2), SCORE_CURVATURE / graph.spec.tokens_in(layer))
    return xp.sqrt(size), xp.where(c2 < 0, np.float32(-1), np.float32(1))


def _q_scale(graph: Graph, layer: int, index: int, head: Head, weights: Weights) -> Array:
    if head.folded is None:
        return np.float32(1)
    if head.folded == head.quadratic:
        return _curvature(graph, layer, index, head.folded, weights)[0]
    if BY_NAME[head.folded].fitted:
        return _fitted(layer, index, head.folded, weights)[0]
    return np.float32(graph.public_scale(layer, head.folded))


def _v_sign(graph: Graph, layer: int, index: int, head: Head, weights: Weights) -> Array:
    if head.quadratic is None:
        return np.float32(1)
    return _curvature(graph, layer, index, head.quadratic, weights)[1]


def _head_parameters(graph: Graph, layer: int, index: int, head: Head, weights: Weights) -> Values:
    """What a head's rows need beside the weights: numbers (1, 1), and static rows' weights (rows, N)."""
    at = f"blocks.{layer}.heads.{index}."
    found: Values = {}
    static: Values = {}
    for name in head.names:
        entry = BY_NAME[name]
        if not entry.fitted:
            continue
        coefficients = _fitted(layer, index, name, weights)
        if entry.family == "static":
            rows = dict(head.groups)[name]
            static[at + "static"] = coefficients[0][rows] * _v_sign(graph, layer, index, head, weights)
        elif entry.family == "square":
            root, sign = _curvature(graph, layer, index, name, weights)
            shift = sign * coefficients[1] / (2 * root)
            found |= {"shift": shift, "level": sign * coefficients[2] - shift * shift}
            if len(head.names) > 1:
                found |= {"sign": sign, "unscale": 1 / root}
            if head.folded is None:
                found["scale"] = root
        elif entry.family == "linear":
            found["linear_level"] = coefficients[1]
            if head.folded != name:
                found["linear_scale"] = coefficients[0]
        else:
            found["constant"] = coefficients[0]
    return static | {at + name: value.reshape(1, 1) for name, value in found.items()}


def _mlp(graph: Graph, layer: int, weights: Weights) -> Values:
    at = f"blocks.{layer}."
    up = _behind_norm(graph, at + "norm2", weights[at + "up.weight"], weights[at + "up.bias"], weights)
    down = (weights[at + "down.weight"], weights[at + "down.bias"])
    values: Values = {}
    for group in graph.mlp_groups(layer):
        values |= _mlp_group(graph, layer, group, up, down, weights)
    if graph.by_element(layer):
        values |= {
            name: weights[name]
            for entry in graph.plan.operators("gelu", layer)
            for name in (f"{at}gelu.{entry.name}.{p}" for p in entry.parameters)
        }
    return values


def _mlp_group(
    graph: Graph,
    layer: int,
    group: MlpGroup,
    up: tuple[Array, Array],
    down: tuple[Array, Array],
    weights: Weights,
) -> Values:
    at, (weight1, bias1), (weight2, bias2) = f"blocks.{layer}.mlp.{group.key}.", up, down
    xp = _module(weights)
    if group.path == "square":
        q2, q1, q0 = _polynomial(layer, group.key, weights)
        root = xp.sqrt(xp.maximum(xp.abs(q2), CHANNEL_CURVATURE))
        sign = xp.where(xp.asarray(q2) < 0, np.float32(-1), np.float32(1))
        shift = sign * q1 / (2 * root)
        level = xp.broadcast_to(q0 - sign * shift * shift, bias1.shape)
        weight1, bias1 = weight1 * root, bias1 * root + shift
        weight2, bias2 = weight2 * sign, bias2 + weight2 @ level
    elif group.path == "merged":
        a, b = _polynomial(layer, group.key, weights)
        weight1, bias1 = weight1 * a, bias1 * a + b
    elif group.path == "hidden" and not graph.by_element(layer) and graph.rewrites.fold:
        # The short GELU wants this factor, and what is homogeneous lets it through.
        weight1, bias1, weight2 = weight1 * GELU_SCALE, bias1 * GELU_SCALE, weight2 / GELU_SCALE
    weight2, bias2 = _before_residual(graph, layer, 2, weight2, bias2, weights)
    if group.path == "merged":
        return {at + "weight": weight1 @ weight2, at + "bias": bias1 @ weight2 + bias2}
    return {
        at + "up.weight": weight1,
        at + "up.bias": bias1,
        at + "down.weight": weight2,
        at + "down.bias": bias2,
    }


def _polynomial(layer: int, name: str, weights: Weights) -> Sequence[Array | float]:
    """The coefficients of what stands in for GELU, public or one a channel, highest power first."""
    entry = BY_NAME[name]
    return entry.coefficients or [weights[f"blocks.{layer}.gelu.{name}.{p}"] for p in entry.parameters]


def _head(graph: Graph, weights: Weights) -> Values:
    weight, bias = _behind_norm(graph, "norm", weights["head.weight"], weights["head.bias"], weights)
    if graph.spec.pooling == "mean" and not graph.sums_before_norm and graph.rewrites.fold:
        weight = weight / graph.pooled_tokens
    values = {"head.weight": weight, "head.bias": bias}
    if not graph.rewrites.fold:
        values |= {name: weights[name] for name in ("norm.weight", "norm.bias")}
    return values
