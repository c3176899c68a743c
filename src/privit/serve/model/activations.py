"""One jax function for each operator of the table in `operators.py`, of the same name.

Functions of kind gelu take the hidden values (..., channels); functions of kind softmax take scores
(..., N) after 1/sqrt(head width), one row of the attention per last axis. Parameters arrive shaped so
that they broadcast against that. `train/student/activations.py` holds the same functions in torch; the
program that is compiled computes them in the cheaper forms of `attention.py` and `mlp.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import Array

from privit.operators import TABLE
from privit.spec import GeluVariant

Parameters = Mapping[str, Array]

# Keeps a row of only negative scores from dividing by zero (MPCViT, Zeng et al. 2022).
RELU_SOFTMAX_EPSILON = 1e-3
# The shift of MPCFormer's "2Quad" (Li et al. 2022).
TWO_QUAD_SHIFT = 5.0


def gelu(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """x Phi(x), with Phi by erf or by its tanh approximation."""
    return jax.nn.gelu(x, approximate=variant == "tanh")


def identity(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """x."""
    return x


def relu(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """max(x, 0)."""
    return jnp.maximum(x, 0.0)


def quad(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """0.125 x^2 + 0.25 x + 0.5."""
    return (0.125 * x + 0.25) * x + 0.5


def affine(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """a x + b."""
    return parameters["a"] * x + parameters["b"]


def quadratic(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """q2 x^2 + q1 x + q0."""
    return (parameters["q2"] * x + parameters["q1"]) * x + parameters["q0"]


def softmax(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """exp(s) / sum exp(s)."""
    return jax.nn.softmax(scores, axis=-1)


def squared_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """s^2 / N."""
    return jnp.square(scores) / tokens


def scale_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """s / N."""
    return scores / tokens


def uniform_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """1 / N."""
    return jnp.full_like(scores, 1.0 / tokens)


def relu_softmax(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """relu(s) / (sum relu(s) + 1e-3)."""
    positive = jnp.maximum(scores, 0.0)
    return positive / (positive.sum(axis=-1, keepdims=True) + RELU_SOFTMAX_EPSILON)


def two_quad(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """(s + 5)^2 / sum (s + 5)^2."""
    squares = jnp.square(scores + TWO_QUAD_SHIFT)
    return squares / squares.sum(axis=-1, keepdims=True)


def quadratic_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """c2 s^2 + c1 s + c0."""
    return (parameters["c2"] * scores + parameters["c1"]) * scores + parameters["c0"]


def linear_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """c1 s + c0."""
    return parameters["c1"] * scores + parameters["c0"]


def constant_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """c0."""
    return jnp.broadcast_to(parameters["c0"], scores.shape)


FUNCTIONS: dict[str, Callable[..., Array]] = {entry.name: globals()[entry.name] for entry in TABLE}
"""The function of each operator, by name; an operator without one fails at import."""
