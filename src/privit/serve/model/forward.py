"""The student in plain jax.numpy, from spec, plan and folded weights: what the engine runs.

Read side by side with `train/student/vit.py`, this is the same network;
what the plan removed does not exist here.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from privit.program.graph import Graph
from privit.serve.model.attention import attention
from privit.serve.model.class_token import class_token_attention
from privit.serve.model.images import for_all, product, sum_of_rows
from privit.serve.model.mlp import mlp
from privit.serve.model.norms import Observe, Stream, norm_factor, normalise, pool
from privit.spec import Spec

Values = Mapping[str, Array]


def forward(graph: Graph, values: Values, observe: Observe | None = None) -> Array:
    """Logits (classes,), of several images (images, classes); `values` has folded weights and `patches`."""
    stream = Stream(embed(graph, values))
    for layer in range(graph.spec.depth):
        stream = block(graph, layer, values, stream, observe)
    return head(graph, values, stream, observe)


def cut_patches(spec: Spec, pixels: np.ndarray) -> np.ndarray:
    """An image (C, S, S) as patches (P, values in a patch), in the order of the patch weights."""
    side, patch = spec.image_size // spec.patch_size, spec.patch_size
    cut = pixels.reshape(spec.channels, side, patch, side, patch).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(cut.reshape(spec.patches, spec.patch_values), dtype=np.float32)


def embed(graph: Graph, values: Values) -> Array:
    """Patches (P, values) to tokens (N, width), the class token first; each of all images (`images.py`)."""
    images = graph.batch.images
    x = product(graph.batch, values["patches"], values["embed.weight"])
    offset = for_all(values["embed.offset"], images)
    if not graph.spec.class_token:
        return x + offset
    return jnp.concatenate([offset[:images], x + offset[images:]], axis=0)


def block(graph: Graph, layer: int, values: Values, stream: Stream, observe: Observe | None = None) -> Stream:
    """The tokens that enter a block (N, width) to those that leave it."""
    at = f"blocks.{layer}."
    if graph.block(layer).pool:
        stream = pool(graph, layer, values, stream)
    if graph.reads_one_row(layer):
        factor, stream = norm_factor(graph, at + "norm1", values, stream, observe)
        attended = class_token_attention(graph, layer, values, stream.tokens, factor, observe)
    else:
        x, stream = normalise(graph, at + "norm1", values, stream, observe)
        attended = attention(graph, layer, values, x, observe)
    rows = graph.query_rows(layer) * graph.batch.images
    stream = Stream(*(None if part is None else part[:rows] for part in stream))
    stream = _moved(stream, _layer_scaled(attended, values, at + "scale1"))
    x, stream = normalise(graph, at + "norm2", values, stream, observe)
    return _moved(stream, _layer_scaled(mlp(graph, layer, values, x, observe), values, at + "scale2"))


def _moved(stream: Stream, change: Array) -> Stream:
    return Stream(stream.tokens + change, stream.factor)


def _layer_scaled(x: Array, values: Values, name: str) -> Array:
    return x * values[name] if name in values else x


def head(graph: Graph, values: Values, stream: Stream, observe: Observe | None = None) -> Array:
    """Tokens to logits (classes,), of several images (images, classes)."""
    images = graph.batch.images
    first = images * int(graph.spec.class_token)
    rows = slice(0, images) if graph.spec.pooling == "cls" else slice(first, None)
    x, factor = (None if part is None else part[rows] for part in stream)
    assert x is not None
    if graph.sums_before_norm:
        # A LayerNorm of the sum is that of the mean, with its epsilon in the sum's units.
        x = sum_of_rows(x, images)
        factor = None if factor is None else sum_of_rows(factor, images)
    elif graph.spec.pooling == "mean" and graph.spec.final_norm == "after_pool":
        rows_each = graph.pooled_tokens
        x, factor = (None if part is None else sum_of_rows(part, images) / rows_each for part in (x, factor))
    pooled, _ = normalise(graph, "norm", values, Stream(x, factor), observe)
    if graph.spec.pooling == "mean" and graph.spec.final_norm == "before_pool":
        pooled = sum_of_rows(pooled, images)
        if not graph.rewrites.fold:
            pooled = pooled * (1 / graph.pooled_tokens)
    logits = product(graph.batch, pooled, values["head.weight"]) + values["head.bias"]
    return logits[0] if images == 1 else logits
