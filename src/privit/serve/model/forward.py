"""The student in plain jax.numpy, from spec, plan and folded weights: what the engine runs.

Read side by side with `train/student/vit.py`, this is the same network;
what the plan removed does not exist here.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from privit.program.graph import Graph
from privit.program.ranges import GUARD
from privit.serve.model.attention import Observe, attention
from privit.serve.model.class_token import class_token_attention
from privit.serve.model.mlp import mlp
from privit.spec import Spec

Values = Mapping[str, Array]


def forward(graph: Graph, values: Values, observe: Observe | None = None) -> Array:
    """Logits (classes,) of one image; `values` holds the folded weights and `patches`."""
    x = embed(graph, values)
    for layer in range(graph.spec.depth):
        x = block(graph, layer, values, x, observe)
    return head(graph, values, x, observe)


def cut_patches(spec: Spec, pixels: np.ndarray) -> np.ndarray:
    """An image (C, S, S) as patches (P, values in a patch), in the order of the patch weights."""
    side, patch = spec.image_size // spec.patch_size, spec.patch_size
    cut = pixels.reshape(spec.channels, side, patch, side, patch).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(cut.reshape(spec.patches, spec.patch_values), dtype=np.float32)


def embed(graph: Graph, values: Values) -> Array:
    """Patches (P, values) to tokens (N, width), the class token first."""
    x, offset = values["patches"] @ values["embed.weight"], values["embed.offset"]
    if not graph.spec.class_token:
        return x + offset
    return jnp.concatenate([offset[:1], x + offset[1:]], axis=0)


def block(graph: Graph, layer: int, values: Values, x: Array, observe: Observe | None = None) -> Array:
    """Tokens (N, width) to the tokens that leave the block."""
    at = f"blocks.{layer}."
    if graph.reads_one_row(layer):
        inverse = inverse_deviation(graph, at + "norm1", x, observe)
        attended = class_token_attention(graph, layer, values, x, inverse, observe)
    else:
        attended = attention(graph, layer, values, norm(graph, at + "norm1", values, x, observe), observe)
    x = x[: graph.query_rows(layer)] + _layer_scaled(attended, values, at + "scale1")
    changed = mlp(graph, layer, values, norm(graph, at + "norm2", values, x, observe), observe)
    return x + _layer_scaled(changed, values, at + "scale2")


def _layer_scaled(x: Array, values: Values, name: str) -> Array:
    return x * values[name] if name in values else x


def norm(graph: Graph, name: str, values: Values, x: Array, observe: Observe | None = None) -> Array:
    """LayerNorm up to what the server folded: its mean is zero already, gamma, beta and a gain come later."""
    if graph.rewrites.fold:
        return x * inverse_deviation(graph, name, x, observe)
    if observe is not None:
        observe(name, x)
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    inverse = lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + graph.norm_eps(name))
    return x * inverse * values[name + ".weight"] + values[name + ".bias"]


def inverse_deviation(graph: Graph, name: str, x: Array, observe: Observe | None = None) -> Array:
    """What LayerNorm multiplies each token of mean zero with (N, 1), up to a gain that the server folded."""
    if observe is not None:
        observe(name, x)
    total = jnp.sum(jnp.square(x), axis=-1, keepdims=True) + graph.spec.width * graph.norm_eps(name)
    if observe is not None:
        observe(GUARD + name, total)
    root = graph.root(name)
    return root(total, jnp) if root else lax.rsqrt(total)


def head(graph: Graph, values: Values, x: Array, observe: Observe | None = None) -> Array:
    """Tokens to logits (classes,)."""
    spec = graph.spec
    if spec.pooling == "cls":
        pooled = norm(graph, "norm", values, x[:1], observe)
    elif graph.sums_before_norm:
        # A LayerNorm of the sum is that of the mean, with its epsilon in the sum's units.
        pooled = norm(graph, "norm", values, jnp.sum(_read(spec, x), axis=0, keepdims=True), observe)
    else:
        pooled = jnp.sum(norm(graph, "norm", values, _read(spec, x), observe), axis=0, keepdims=True)
        if not graph.rewrites.fold:
            pooled = pooled * (1 / graph.pooled_tokens)
    return (pooled @ values["head.weight"] + values["head.bias"])[0]


def _read(spec: Spec, x: Array) -> Array:
    return x[int(spec.class_token) :]
