"""The program that a session runs first, so that its first query costs what every later one does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import jax.numpy as jnp
from jax import Array

from privit.program.choices import Rewrites
from privit.program.graph import Graph
from privit.program.operation import PARALLEL_ABOVE
from privit.program.operations import operations
from privit.serve.compile.compile import Input, Program, program_of

SIDE = 24
"""Of the square matrices: their product has to be packed, which needs keys that a smaller one does not."""
FEW, MANY = SIDE**2, 4 * SIDE**2
"""Many values at once run in two streams of oblivious transfers, and setting the second up takes as long as
everything else. Products come out of a stock that is refilled a ciphertext at a time; fewer are used here, so
that the first query finds some left."""
WARM_UP_INPUTS = (
    Input("warm_up_left", (SIDE, SIDE), "server"),
    Input("warm_up_right", (SIDE, SIDE), "client"),
)


@cache
def warm_up_program(parallel: bool = True) -> Program:
    """One use of everything that an engine prepares once: keys of products, transfers of comparisons.

    Without `parallel` one stream of transfers is left, which is enough for programs of few values at once.
    """
    count = MANY if parallel else FEW
    return program_of(lambda values: _every_first_use(values, count), WARM_UP_INPUTS)


def runs_parallel(graph: Graph) -> bool:
    """Whether the graph's program has an operation on so many values that its transfers take two streams.

    Of a graph without some rewrite no operations are listed: it may have one.
    """
    return graph.rewrites != Rewrites() or any(
        math.prod(operation.results) > PARALLEL_ABOVE
        for _, listed in operations(graph)
        for operation in listed
    )


def _every_first_use(values: Mapping[str, Array], count: int) -> Array:
    left, right = (values[entry.name] for entry in WARM_UP_INPUTS)
    # One product for each way in which two factors can be known: by one party each, shared, or both.
    shared = left @ right
    products = (shared @ shared) + (shared @ left)
    many = jnp.concatenate([products.reshape(-1)] * (count // SIDE**2))
    return jnp.sum(jnp.square(many) + jnp.maximum(many, 0.0))
