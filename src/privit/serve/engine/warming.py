"""The program that a session runs first, so that its first query costs what every later one does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import jax.numpy as jnp
from jax import Array

from privit.serve.compile.compile import Input, Program, program_of

SIDE = 24
"""Of the square matrices: their product has to be packed, which needs keys that a smaller one does not."""
VALUES = 4 * SIDE**2
"""More than 2,048 compared values run in two streams of oblivious transfers. Products come out of a stock
that is refilled a ciphertext at a time; fewer are used here, so that the first query finds some left."""
WARM_UP_INPUTS = (
    Input("warm_up_left", (SIDE, SIDE), "server"),
    Input("warm_up_right", (SIDE, SIDE), "client"),
)


@cache
def warm_up_program() -> Program:
    """One use of everything that an engine prepares once: keys of products, transfers of comparisons."""
    return program_of(_every_first_use, WARM_UP_INPUTS)


def _every_first_use(values: Mapping[str, Array]) -> Array:
    left, right = (values[entry.name] for entry in WARM_UP_INPUTS)
    # One product for each way in which two factors can be known: by one party each, shared, or both.
    shared = left @ right
    products = (shared @ shared) + (shared @ left)
    many = jnp.concatenate([products.reshape(-1)] * -(-VALUES // SIDE**2))[:VALUES]
    return jnp.sum(jnp.square(many) + jnp.maximum(many, 0.0))
