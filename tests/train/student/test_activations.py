"""Every operator of the table has a torch function that computes its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from privit.operators import TABLE, Operator
from privit.train.student.activations import FUNCTIONS

GELU_KIND = [entry for entry in TABLE if entry.kind == "gelu"]
NORM_KIND = [entry for entry in TABLE if entry.kind == "norm"]
SOFTMAX_KIND = [entry for entry in TABLE if entry.kind == "softmax"]
CHANNELS, HEADS, TOKENS = 6, 3, 5


def values_of(entry: Operator, owners: int, trailing: int = 0) -> dict[str, Tensor]:
    """A different value for every parameter and owner, shaped to broadcast."""
    torch.manual_seed(entry.id)
    return {name: torch.randn(owners, *(1,) * trailing).double() for name in entry.parameters}


def by_formula(entry: Operator, x: np.ndarray, parameters: dict[str, Tensor], tokens: int) -> np.ndarray:
    """The table's formula, read by Python."""
    names = {name: value.numpy() for name, value in parameters.items()}
    text = entry.formula.replace("x Phi(x)", "x * Phi(x)").replace("^", "**")
    for name in [*names, "0.125", "0.25"]:
        text = text.replace(f"{name} x", f"{name} * x").replace(f"{name} s", f"{name} * s")
    for total in ("sum exp(s)", "sum relu(s)", "sum (s + 5)**2"):
        text = text.replace(total, f"total({total.removeprefix('sum ')})")
    functions = {
        "exp": np.exp,
        "max": np.maximum,
        "relu": lambda s: np.maximum(s, 0),
        "total": lambda row: row.sum(-1, keepdims=True),
        "Phi": np.vectorize(lambda t: 0.5 * (1 + math.erf(t / math.sqrt(2)))),
    }
    result = eval(text, functions, {"x": x, "s": x, "N": tokens} | names)
    return np.broadcast_to(result, x.shape)


@pytest.mark.parametrize("entry", GELU_KIND, ids=lambda e: e.name)
def test_an_operator_on_hidden_values_computes_the_formula_of_the_table(entry: Operator) -> None:
    x, parameters = torch.randn(2, 4, CHANNELS).double() * 3, values_of(entry, CHANNELS)
    found = FUNCTIONS[entry.name](x, parameters, "erf")
    np.testing.assert_allclose(found.numpy(), by_formula(entry, x.numpy(), parameters, TOKENS), atol=1e-12)


@pytest.mark.parametrize("entry", SOFTMAX_KIND, ids=lambda e: e.name)
def test_an_operator_on_scores_computes_the_formula_of_the_table(entry: Operator) -> None:
    scores, parameters = torch.randn(2, HEADS, TOKENS, TOKENS).double() * 3, values_of(entry, HEADS, 2)
    found = FUNCTIONS[entry.name](scores, parameters, TOKENS)
    np.testing.assert_allclose(
        found.numpy(), by_formula(entry, scores.numpy(), parameters, TOKENS), atol=1e-12
    )


def test_the_tanh_variant_of_gelu_is_the_approximation_and_not_erf() -> None:
    x = torch.linspace(-4, 4, 101).double()
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    tanh, erf = (FUNCTIONS["gelu"](x, {}, variant) for variant in ("tanh", "erf"))
    torch.testing.assert_close(tanh, 0.5 * x * (1 + torch.tanh(inner)))
    assert 1e-5 < (tanh - erf).abs().max() < 1e-3


def test_uniform_attention_depends_on_no_score() -> None:
    scores = torch.randn(2, TOKENS, TOKENS).requires_grad_()
    assert not FUNCTIONS["uniform_attn"](scores, {}, TOKENS).requires_grad


@pytest.mark.parametrize("entry", NORM_KIND, ids=lambda e: e.name)
def test_an_operator_at_a_layer_norm_computes_the_formula_of_the_table(entry: Operator) -> None:
    variance, carried = torch.rand(2, TOKENS, 1).double() + 0.1, torch.rand(2, TOKENS, 1).double()
    parameters = values_of(entry, 1)
    found = FUNCTIONS[entry.name](variance, carried=carried, parameters=parameters, eps=1e-3)
    text = entry.formula.replace("s r", "s * r").replace("b v", "b * v")
    names = {name: value.numpy() for name, value in parameters.items()}
    names |= {"v": variance.numpy(), "r": carried.numpy(), "eps": 1e-3, "sqrt": np.sqrt}
    np.testing.assert_allclose(found.numpy(), np.broadcast_to(eval(text, names), variance.shape), atol=1e-12)


@pytest.mark.parametrize("entry", NORM_KIND, ids=lambda e: e.name)
def test_gradients_at_a_layer_norm_are_those_of_its_values(entry: Operator) -> None:
    variance, carried = (torch.rand(2, TOKENS, 1).double() + 0.1 for _ in range(2))
    parameters = values_of(entry, 1)
    inputs = (variance, carried, *parameters.values())

    def run(variance: Tensor, carried: Tensor, *values: Tensor) -> Tensor:
        named = dict(zip(parameters, values, strict=True))
        return FUNCTIONS[entry.name](variance, carried=carried, parameters=named, eps=1e-3)

    assert torch.autograd.gradcheck(run, tuple(value.requires_grad_() for value in inputs))


@pytest.mark.parametrize("entry", [*GELU_KIND, *SOFTMAX_KIND], ids=lambda e: e.name)
def test_gradients_of_an_operator_are_those_of_its_values(entry: Operator) -> None:
    if entry.name == "uniform_attn":
        pytest.skip("it depends on no score and has no parameter")
    softmax = entry.kind == "softmax"
    x = (torch.randn(2, HEADS, TOKENS, TOKENS) if softmax else torch.randn(2, 4, CHANNELS)).double()
    parameters = values_of(entry, HEADS if softmax else CHANNELS, 2 if softmax else 0)
    inputs = (x.requires_grad_(), *(p.requires_grad_() for p in parameters.values()))

    def run(x: Tensor, *values: Tensor) -> Tensor:
        return FUNCTIONS[entry.name](
            x, dict(zip(parameters, values, strict=True)), TOKENS if softmax else "erf"
        )

    assert torch.autograd.gradcheck(run, inputs)
