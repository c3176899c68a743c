"""The same model as it is commonly written, to measure the rewrites against.

`dense` computes every softmax and GELU the way Flax's ViT does. `scatter` gathers the rows that a plan keeps
and writes them back with `.at[].set`, as the paper's code does. Neither is ever served.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from privit.errors import RequestError
from privit.plan import EXACT, Plan
from privit.serve.compile.compile import CARRIED, PATCHES, Function, Input
from privit.spec import Spec, weight_shapes

Values = Mapping[str, Array]
Style = Literal["dense", "scatter"]


def written_inputs(spec: Spec) -> tuple[Input, ...]:
    """The weights as they are, and the patches."""
    server = tuple(Input(name, shape, "server") for name, shape in weight_shapes(spec).items())
    return (*server, Input(PATCHES, (spec.patches, spec.patch_values), "client"))


def written_parts(spec: Spec, plan: Plan, style: Style) -> tuple[tuple[str, Function], ...]:
    """The segments of the graph as commonly written."""
    layers: list[tuple[str, Function]] = [
        (f"layer {i}", lambda values, i=i: _block(spec, plan, style, i, values, values[CARRIED]))  # type: ignore[misc]
        for i in range(spec.depth)
    ]
    return (
        ("embedding", lambda values: _embed(spec, values)),
        *layers,
        ("head", lambda values: _head(spec, values, values[CARRIED])),
    )


def check_scatter(spec: Spec, plan: Plan) -> None:
    """Refuses a plan that the paper's code could not have run."""
    used = {
        entry.name for kind in plan.layers for i in range(spec.depth) for entry in plan.operators(kind, i)
    }
    unknown = used - {"gelu", "identity", "softmax", "squared_attn", "layer_norm"}
    if any(block.pool for block in spec.blocks):
        raise RequestError("the scatter graph knows no pools of tokens", "leave scatter out of --against")
    if unknown or (plan.granularity.gelu, plan.granularity.softmax) != ("token", "row"):
        raise RequestError(
            "the scatter graph knows GELU tokens and softmax rows with the paper's stand-ins, "
            f"not {', '.join(sorted(unknown)) or plan.granularity}",
            "leave scatter out of --against",
        )


def _embed(spec: Spec, values: Values) -> Array:
    x = values[PATCHES] @ values["patch.weight"].T + values["patch.bias"]
    if spec.class_token:
        x = jnp.concatenate([values["class_token"][None], x], axis=0)
    return x + values["position"]


def _norm(spec: Spec, values: Values, name: str, x: Array) -> Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.maximum(0.0, jnp.mean(jnp.square(x), axis=-1, keepdims=True) - jnp.square(mean))
    scale = lax.rsqrt(variance + spec.norm_eps) * values[f"{name}.weight"]
    return (x - mean) * scale + values[f"{name}.bias"]


def _block(spec: Spec, plan: Plan, style: Style, layer: int, values: Values, x: Array) -> Array:
    at, tokens = f"blocks.{layer}.", spec.tokens
    heads, width = spec.blocks[layer].heads, spec.width // spec.blocks[layer].heads
    h = _norm(spec, values, at + "norm1", x)
    weights, biases = jnp.split(values[at + "qkv.weight"], 3), jnp.split(values[at + "qkv.bias"], 3)
    q, k, v = (
        (h @ w.T + b).reshape(tokens, heads, width) for w, b in zip(weights, biases, strict=True)
    )  # each (N, H, D)
    scores = jnp.einsum("qhd,khd->hqk", q / jnp.sqrt(jnp.float32(width)), k)
    mixed = jnp.einsum("hqk,khd->qhd", _softmax(plan, style, layer, scores), v)
    attended = mixed.reshape(tokens, spec.width) @ values[at + "out.weight"].T + values[at + "out.bias"]
    x = x + (attended * values[at + "scale1"] if at + "scale1" in values else attended)
    hidden = _norm(spec, values, at + "norm2", x) @ values[at + "up.weight"].T + values[at + "up.bias"]
    changed = _gelu(plan, style, layer, hidden) @ values[at + "down.weight"].T + values[at + "down.bias"]
    return x + (changed * values[at + "scale2"] if at + "scale2" in values else changed)


def _softmax(plan: Plan, style: Style, layer: int, scores: Array) -> Array:
    if style == "dense":
        return jax.nn.softmax(scores, axis=-1)
    kept = EXACT[plan.layers["softmax"][layer]]
    exact, cheap = np.nonzero(kept), np.nonzero(~kept)
    exact_rows, cheap_rows = scores[exact], scores[cheap]
    if exact[0].size:
        scores = scores.at[exact].set(jax.nn.softmax(exact_rows, axis=-1))
    if cheap[0].size:
        scores = scores.at[cheap].set(jnp.square(cheap_rows) / scores.shape[-1])
    return scores


def _gelu(plan: Plan, style: Style, layer: int, hidden: Array) -> Array:
    if style == "dense":
        return jax.nn.gelu(hidden)
    kept = np.flatnonzero(EXACT[plan.layers["gelu"][layer]])
    return hidden.at[kept].set(jax.nn.gelu(hidden[kept])) if kept.size else hidden


def _head(spec: Spec, values: Values, x: Array) -> Array:
    read = x[:1] if spec.pooling == "cls" else x[int(spec.class_token) :]
    if spec.final_norm == "after_pool":
        read = jnp.mean(read, axis=0, keepdims=True)
    pooled = jnp.mean(_norm(spec, values, "norm", read), axis=0)
    return pooled @ values["head.weight"].T + values["head.bias"]
