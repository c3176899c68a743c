"""One jax function for each operator of the table in `operators.py`, of the same name.

Functions of kind gelu take the hidden values (..., channels); functions of kind softmax take scores
(..., N) after 1/sqrt(head width), one row of the attention per last axis. Of a normalised operator only the
positive function is written down. Functions of kind norm take the variance of each token (..., 1) and the
factor that was passed on, and give the factor of a token of mean zero. Parameters arrive shaped so
that they broadcast against that. `train/student/activations.py` holds the same functions in torch; the
program that is compiled computes them in the cheaper forms of `attention.py` and `mlp.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import Array, lax

from privit.operators import BY_NAME, TABLE, TWO_QUAD_SHIFT
from privit.spec import GeluVariant

Parameters = Mapping[str, Array]
NUMERATORS: dict[str, Callable[[Array], Array]] = {}
"""The positive function of each normalised operator, by name."""


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


def normalised(numerator: Callable[[Array], Array]) -> Callable[..., Array]:
    """The operator that divides what a positive function gives by its sum along the row plus epsilon.

    The compiled program runs the function alone and divides later.
    """
    name = numerator.__name__
    NUMERATORS[name] = numerator

    def divided(scores: Array, parameters: Parameters, tokens: int) -> Array:
        value = numerator(scores)
        return value / (value.sum(axis=-1, keepdims=True) + BY_NAME[name].epsilon)

    return divided


@normalised
def softmax(scores: Array) -> Array:
    """exp(s - max s), which is stable for any scores."""
    return jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))


def squared_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """s^2 / N."""
    return jnp.square(scores) / tokens


def scale_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """s / N."""
    return scores / tokens


def uniform_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """1 / N."""
    return jnp.full_like(scores, 1.0 / tokens)


@normalised
def relu_softmax(scores: Array) -> Array:
    """relu(s)."""
    return jnp.maximum(scores, 0.0)


@normalised
def two_quad(scores: Array) -> Array:
    """(s + 5)^2."""
    return jnp.square(scores + TWO_QUAD_SHIFT)


def quadratic_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """c2 s^2 + c1 s + c0."""
    return (parameters["c2"] * scores + parameters["c1"]) * scores + parameters["c0"]


def linear_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """c1 s + c0."""
    return parameters["c1"] * scores + parameters["c0"]


def constant_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """c0."""
    return jnp.broadcast_to(parameters["c0"], scores.shape)


def static_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """w."""
    return jnp.broadcast_to(parameters["w"], scores.shape)


def layer_norm(variance: Array, carried: Array | None, parameters: Parameters, eps: float) -> Array:
    """1 / sqrt(v + eps)."""
    return lax.rsqrt(variance + eps)


def reused_norm(variance: Array, carried: Array | None, parameters: Parameters, eps: float) -> Array:
    """s r, with r what the LayerNorm before it passed on."""
    assert carried is not None
    return parameters["s"] * carried


def linear_norm(variance: Array, carried: Array | None, parameters: Parameters, eps: float) -> Array:
    """a + b v."""
    return parameters["a"] + parameters["b"] * variance


def fixed_norm(variance: Array, carried: Array | None, parameters: Parameters, eps: float) -> Array:
    """s."""
    return parameters["s"]


FUNCTIONS: dict[str, Callable[..., Array]] = {entry.name: globals()[entry.name] for entry in TABLE}
"""The function of each operator, by name; an operator without one fails at import."""
