"""The MLP under a plan: tokens that keep no nonlinearity never see the hidden layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from privit.operators import BY_NAME, Operator
from privit.program import forms
from privit.program.graph import Graph, MlpGroup
from privit.program.ranges import GUARD
from privit.serve.model.activations import FUNCTIONS
from privit.serve.model.attention import Observe
from privit.serve.model.images import product, rows_of_all
from privit.serve.model.rows import by_groups, gather_rows, merge_rows, take_rows

Values = Mapping[str, Array]


def mlp(graph: Graph, layer: int, values: Values, x: Array, observe: Observe | None = None) -> Array:
    """Normalised tokens (rows, width) to tokens."""
    groups = graph.mlp_groups(layer)
    places = [rows_of_all(group.all_tokens, graph.batch.images) for group in groups]
    parts = [
        _group(graph, layer, values, group, take_rows(x, rows), observe)
        for group, rows in zip(groups, places, strict=True)
    ]
    return merge_rows(parts, places)


def _group(
    graph: Graph, layer: int, values: Values, group: MlpGroup, x: Array, observe: Observe | None
) -> Array:
    at = f"blocks.{layer}.mlp.{group.key}."
    if group.path == "merged":
        return product(graph.batch, x, values[at + "weight"]) + values[at + "bias"]
    hidden = product(graph.batch, x, values[at + "up.weight"]) + values[at + "up.bias"]
    if group.path == "square":
        hidden = jnp.square(hidden)
        if observe is not None:
            observe(f"{GUARD}blocks.{layer}.squared", jnp.sum(hidden, axis=-1))
    elif graph.by_element(layer):
        hidden = _by_element(graph, layer, values, hidden)
    else:
        hidden = _by_token(graph, group, hidden)
    return product(graph.batch, hidden, values[at + "down.weight"]) + values[at + "down.bias"]


def _by_token(graph: Graph, group: MlpGroup, hidden: Array) -> Array:
    stops = np.cumsum([tokens.size for tokens in group.tokens])
    rows = [np.arange(stop - tokens.size, stop) for stop, tokens in zip(stops, group.tokens, strict=True)]
    pieces = [
        (rows_of_all(index, graph.batch.images), _token_function(graph, BY_NAME[name]))
        for index, name in zip(rows, group.names, strict=True)
    ]
    return by_groups(hidden, pieces, scatter=not graph.rewrites.slices)


def _token_function(graph: Graph, entry: Operator) -> Callable[[Array], Array]:
    """A function of hidden values that carry the scale of the short GELU, where the server folded it in."""
    if entry.name == "gelu":
        short = forms.scaled_gelu if graph.rewrites.fold else forms.gelu
        return lambda hidden: short(hidden, jnp)
    if entry.homogeneous or not graph.rewrites.fold:
        return lambda hidden: FUNCTIONS[entry.name](hidden, {}, graph.spec.gelu)
    scale = forms.GELU_SCALE
    return lambda hidden: FUNCTIONS[entry.name](hidden * (1 / scale), {}, graph.spec.gelu) * scale


def _by_element(graph: Graph, layer: int, values: Values, hidden: Array) -> Array:
    """Single values picked by one constant gather for each operator and put back by its inverse."""
    ids = np.repeat(graph.gelu_ids(layer), graph.batch.images, axis=0).reshape(-1)
    columns = np.broadcast_to(np.arange(hidden.shape[1]), hidden.shape).reshape(-1)
    flat, parts, places = hidden.reshape(-1), [], []
    for entry in (BY_NAME[name] for name in graph.mlp_groups(layer)[0].names):
        place = np.flatnonzero(ids == entry.id)
        picked = flat if place.size == flat.size else gather_rows(flat, place)
        parameters = {
            name: values[f"blocks.{layer}.gelu.{entry.name}.{name}"][columns[place]]
            for name in entry.parameters
        }
        if entry.name == "gelu":
            parts.append(forms.gelu(picked, jnp))
        else:
            parts.append(FUNCTIONS[entry.name](picked, parameters, graph.spec.gelu))
        places.append(place)
    return merge_rows(parts, places).reshape(hidden.shape)
