"""LayerNorm under a plan: a factor of its own, one that an earlier LayerNorm computed, or none.

Tokens pass with the factor that the last LayerNorm computed for them, up to a gain that the server knows and
folds into the weights behind whoever uses it (`fold.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from privit.operators import Operator
from privit.plan import OWN_FACTOR
from privit.program.graph import Graph
from privit.program.norms import Norm
from privit.program.ranges import GUARD
from privit.serve.model.activations import FUNCTIONS
from privit.serve.model.images import left_product

Values = Mapping[str, Array]
Observe = Callable[[str, Array], None]


class Stream(NamedTuple):
    """Tokens (N, width) on their way, and what the last LayerNorm multiplied each with (N, 1), if kept."""

    tokens: Array
    factor: Array | None = None


def normalise(
    graph: Graph, name: str, values: Values, stream: Stream, observe: Observe | None = None
) -> tuple[Array, Stream]:
    """Normalised tokens, up to what the server folded, and the stream that goes on."""
    if not graph.rewrites.fold:
        return _unfolded(graph, name, values, stream, observe)
    factor, stream = norm_factor(graph, name, values, stream, observe)
    return (stream.tokens if factor is None else stream.tokens * factor), stream


def norm_factor(
    graph: Graph, name: str, values: Values, stream: Stream, observe: Observe | None = None
) -> tuple[Array | None, Stream]:
    """What LayerNorm multiplies each token of mean zero with (N, 1); None where the server folded it."""
    norm = graph.norm(name)
    if observe is not None and norm.own:
        observe(name, stream.tokens)
    if not norm.split:
        factor = _factor(graph, name, values, norm.patches, "", stream, observe=observe)
        kept = stream.factor if norm.patches.family == "constant" else factor
        return factor, Stream(stream.tokens, kept)
    parts, kept_parts = [], []
    sums = _sums(graph, name, norm, stream.tokens, observe) if norm.all_own else None
    for entry, rows, which in zip(norm.groups, _sides(graph), ("class", "patches"), strict=True):
        piece = Stream(stream.tokens[rows], None if stream.factor is None else stream.factor[rows])
        known = None if sums is None else sums[rows]
        factor = _factor(graph, name, values, entry, which, piece, known, observe)
        blank = jnp.zeros((piece.tokens.shape[0], 1), piece.tokens.dtype)
        kept = piece.factor if entry.family == "constant" else factor
        kept_parts.append(blank if kept is None else kept)
        parts.append(_on_one_scale(name, values, factor, which, piece))
    return jnp.concatenate(parts), Stream(stream.tokens, jnp.concatenate(kept_parts))


def _sides(graph: Graph) -> tuple[slice, slice]:
    """The rows of the class token and those of the patches, of every image."""
    images = graph.batch.images
    return slice(0, images), slice(images, None)


def _on_one_scale(name: str, values: Values, factor: Array | None, which: str, piece: Stream) -> Array:
    """The class token's factor at the scale that is folded for patches; a constant is the server's own."""
    ratio = values[f"{name}.ratio"] if which == "class" else None
    if factor is None:
        one = jnp.ones((piece.tokens.shape[0], 1), piece.tokens.dtype)
        return one if ratio is None else jnp.broadcast_to(ratio, one.shape)
    return factor if ratio is None else factor * ratio


def _sums(graph: Graph, name: str, norm: Norm, tokens: Array, observe: Observe | None) -> Array:
    """The sum of squares of every row at once, in the rounds of one; as variances if all are linear."""
    total = jnp.sum(jnp.square(tokens), axis=-1, keepdims=True)
    if observe is not None:
        observe(GUARD + name, total)
    return total * graph.variance_scale(name) if norm.all_linear else total


def _factor(
    graph: Graph,
    name: str,
    values: Values,
    entry: Operator,
    which: str,
    piece: Stream,
    known: Array | None = None,
    observe: Observe | None = None,
) -> Array | None:
    if entry.family == "constant":
        return None
    if entry.family == "reused":
        assert piece.factor is not None, name
        return piece.factor
    assert entry.family in OWN_FACTOR, entry
    total = jnp.sum(jnp.square(piece.tokens), axis=-1, keepdims=True) if known is None else known
    if entry.family == "normalised":
        total = total + graph.spec.width * graph.norm_eps(name)
    if observe is not None and known is None:
        observe(GUARD + name, total)
    if entry.family == "linear":
        ready = known is not None and graph.norm(name).all_linear
        scaled = total if ready else total * graph.variance_scale(name)
        return scaled + values[".".join(filter(None, (name, which, "level")))]
    root = graph.root(name)
    return root(total, jnp) if root else lax.rsqrt(total)


def _unfolded(
    graph: Graph, name: str, values: Values, stream: Stream, observe: Observe | None
) -> tuple[Array, Stream]:
    norm, x = graph.norm(name), stream.tokens
    if observe is not None and norm.own:
        observe(name, x)
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    rows = _sides(graph) if norm.split else (slice(None),)
    parts, kept = [], []
    for place, (entry, row) in enumerate(zip(norm.groups, rows, strict=True)):
        before = None if stream.factor is None else stream.factor[row]
        given = {p: values[f"{name}.{place}.{p}"] for p in entry.parameters}
        found = jnp.broadcast_to(
            FUNCTIONS[entry.name](variance[row], before, given, graph.norm_eps(name)), variance[row].shape
        )
        passed = before if entry.family == "constant" else found
        parts.append(found)
        kept.append(jnp.zeros_like(found) if passed is None else passed)
    factor = jnp.concatenate(parts)
    scaled = x * factor * values[name + ".weight"] + values[name + ".bias"]
    return scaled, Stream(stream.tokens, jnp.concatenate(kept))


def pool(graph: Graph, layer: int, values: Values, stream: Stream) -> Stream:
    """Fewer patches, and where a later LayerNorm reuses their factors, those mixed by the same matrix."""
    images = graph.batch.images
    first = images * int(graph.spec.class_token)
    patches, factor = stream.tokens[first:], stream.factor
    matrix = values[f"blocks.{layer}.pool.weight"]
    if factor is None or not graph.carries(layer, only_patches=True):
        mixed = left_product(graph.batch, matrix, patches)
        mixed_factor = jnp.zeros((mixed.shape[0], 1), patches.dtype)
    else:
        both = left_product(graph.batch, matrix, jnp.concatenate([patches, factor[first:]], axis=1))
        mixed, mixed_factor = both[:, :-1], both[:, -1:]
    if first:
        mixed = jnp.concatenate([stream.tokens[:first], mixed])
        mixed_factor = mixed_factor if factor is None else jnp.concatenate([factor[:first], mixed_factor])
    return Stream(mixed, None if factor is None else mixed_factor)


def pack(graph: Graph, layer: int, stream: Stream) -> Array:
    """What enters a block as one array: tokens, and their factor as one more column if it is still read."""
    if not graph.carries(layer):
        return stream.tokens
    assert stream.factor is not None
    return jnp.concatenate([stream.tokens, stream.factor], axis=1)


def unpack(graph: Graph, layer: int, packed: Array) -> Stream:
    """The stream that `pack` packed."""
    if not graph.carries(layer):
        return Stream(packed)
    return Stream(packed[:, :-1], packed[:, -1:])


def gains(graph: Graph, weights: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """For each LayerNorm, by what its factor must still be multiplied, for the class token and for patches.

    The scalars of reused factors add up along the way: a later one has those of the earlier ones in it.
    """
    found: dict[str, dict[str, Array]] = {}
    carried = {"class": np.float32(1), "patches": np.float32(1)}
    for index, (name, norm) in enumerate(graph.norms.items()):
        found[name] = {}
        for which, entry in (("class", norm.class_token), ("patches", norm.patches)):
            if entry is None or (which == "patches" and norm.only_class_token):
                continue
            given = norm_parameters(graph, index, which, entry, weights)
            gain = _gain(graph, name, entry, given, carried[which])
            found[name][which] = gain
            if entry.family != "constant":
                carried[which] = gain
    return found


def _gain(graph: Graph, name: str, entry: Operator, given: Mapping[str, Array], carried: Array) -> Array:
    # The last LayerNorm may see a sum of tokens and of their factors, where the model has means.
    summed = graph.summed_tokens(name)
    if entry.family == "constant":
        return given["s"] / summed
    if entry.family == "reused":
        return given["s"] * carried / summed**2
    if entry.family == "linear":
        return given["b"] * graph.variance_unit(name) / summed**3
    return np.float32(graph.norm_gain(name))


def norm_parameters(
    graph: Graph, index: int, which: str, entry: Operator, weights: Mapping[str, Array]
) -> dict[str, Array]:
    """The parameters of one LayerNorm's operator, for the class token or for patches."""
    layer, place = norm_site(graph, index)
    row = (place,) if graph.plan.granularity.norm == "layer" else (place, 0 if which == "class" else -1)
    return {p: weights[f"blocks.{layer}.norm.{entry.name}.{p}"][row] for p in entry.parameters}


def norm_site(graph: Graph, index: int) -> tuple[int, int]:
    """Layer and place among its sites of the LayerNorm of that number; the final one is the last block's."""
    layer = min(index // 2, graph.spec.depth - 1)
    return layer, index - 2 * layer


def levels(graph: Graph, weights: Mapping[str, Array], norm: Norm, index: int) -> dict[str, Array]:
    """What the server adds to a scaled variance, and the class token's scale relative to the patches'."""
    found: dict[str, Array] = {}
    for entry, which in zip(norm.groups, ("class", "patches") if norm.split else ("",), strict=True):
        if entry.family == "linear":
            side = which or ("class" if norm.only_class_token else "patches")
            given = norm_parameters(graph, index, side, entry, weights)
            unit = graph.variance_unit(norm.name) / graph.summed_tokens(norm.name) ** 2
            level = given["a"] / (given["b"] * unit)
            found[".".join(filter(None, (norm.name, which, "level")))] = level.reshape(1, 1)
    return found
