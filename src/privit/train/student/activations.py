"""One torch function for each operator of the table in `operators.py`, of the same name.

Functions of kind gelu take the hidden values (..., channels); functions of kind softmax take scores
(..., N) after 1/sqrt(head width), one row of the attention per last axis. Of a normalised operator only the
positive function is written down. Functions of kind norm take the variance of each token (..., 1) and the
factor that was passed on, and give the factor of a token of mean zero. Parameters arrive shaped so
that they broadcast against that. `serve/model/activations.py` holds the same functions in jax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from privit.operators import BY_NAME, TABLE, TWO_QUAD_SHIFT
from privit.spec import GeluVariant
from privit.train.student.autograd import Quadratic

Parameters = Mapping[str, Tensor]
NUMERATORS: dict[str, Callable[[Tensor], Tensor]] = {}
"""The positive function of each normalised operator but softmax, by name."""


def gelu(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """x Phi(x), with Phi by erf or by its tanh approximation."""
    return F.gelu(x, approximate="tanh" if variant == "tanh" else "none")


def identity(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """x."""
    return x


def relu(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """max(x, 0)."""
    return F.relu(x)


def quad(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """0.125 x^2 + 0.25 x + 0.5."""
    return (0.125 * x + 0.25) * x + 0.5


def affine(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """a x + b."""
    return parameters["a"] * x + parameters["b"]


def quadratic(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """q2 x^2 + q1 x + q0."""
    return Quadratic.apply(x, parameters["q2"], parameters["q1"], parameters["q0"])


def normalised(numerator: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """The operator that divides what a positive function gives by its sum along the row plus epsilon."""
    name = numerator.__name__
    NUMERATORS[name] = numerator

    def divided(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
        value = numerator(scores)
        return value / (value.sum(dim=-1, keepdim=True) + BY_NAME[name].epsilon)

    return divided


def softmax(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """exp(s) / sum exp(s)."""
    return scores.softmax(dim=-1)


def squared_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """s^2 / N."""
    return scores.square() / tokens


def scale_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """s / N."""
    return scores / tokens


def uniform_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """1 / N."""
    return torch.full_like(scores, 1.0 / tokens)


@normalised
def relu_softmax(scores: Tensor) -> Tensor:
    """relu(s)."""
    return scores.relu()


@normalised
def two_quad(scores: Tensor) -> Tensor:
    """(s + 5)^2."""
    return (scores + TWO_QUAD_SHIFT).square()


def quadratic_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """c2 s^2 + c1 s + c0."""
    return Quadratic.apply(scores, parameters["c2"], parameters["c1"], parameters["c0"])


def linear_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """c1 s + c0."""
    return parameters["c1"] * scores + parameters["c0"]


def constant_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """c0."""
    return parameters["c0"].expand_as(scores)


def static_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """w."""
    return parameters["w"].expand_as(scores)


def layer_norm(variance: Tensor, carried: Tensor | None, parameters: Parameters, eps: float) -> Tensor:
    """1 / sqrt(v + eps)."""
    return (variance + eps).rsqrt()


def reused_norm(variance: Tensor, carried: Tensor | None, parameters: Parameters, eps: float) -> Tensor:
    """s r, with r what the LayerNorm before it passed on."""
    assert carried is not None
    return parameters["s"] * carried


def linear_norm(variance: Tensor, carried: Tensor | None, parameters: Parameters, eps: float) -> Tensor:
    """a + b v."""
    return parameters["a"] + parameters["b"] * variance


def fixed_norm(variance: Tensor, carried: Tensor | None, parameters: Parameters, eps: float) -> Tensor:
    """s."""
    return parameters["s"].expand_as(variance)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {entry.name: globals()[entry.name] for entry in TABLE}
"""The function of each operator, by name; an operator without one fails at import."""
