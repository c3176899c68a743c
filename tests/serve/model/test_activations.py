from __future__ import annotations

import numpy as np
import pytest
import torch

from privit.operators import TABLE
from privit.serve.model.activations import FUNCTIONS
from privit.train.student.activations import FUNCTIONS as TORCH_FUNCTIONS


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_each_operator_computes_what_its_torch_twin_computes(entry) -> None:
    rng = np.random.default_rng(entry.id)
    x = (2 * rng.standard_normal((4, 6))).astype(np.float32)
    shapes = {"channel": (6,), "head": (4, 1), "pair": (4, 6), "site": ()}
    parameters = {n: np.float32(rng.standard_normal(shapes[per])) for n, per in entry.parameters.items()}
    if entry.kind == "norm":
        _compare_norms(entry, np.square(x[:, :1]), np.abs(x[:, 1:2]), parameters)
        return
    for setting in ("erf", "tanh") if entry.kind == "gelu" else (6,):
        found = np.asarray(FUNCTIONS[entry.name](x, parameters, setting))
        given = {n: torch.from_numpy(p) for n, p in parameters.items()}
        expected = TORCH_FUNCTIONS[entry.name](torch.from_numpy(x), given, setting).numpy()
        np.testing.assert_allclose(found, expected, atol=2e-6, rtol=2e-6)


def _compare_norms(entry, variance, carried, parameters) -> None:
    """Variances and the factors that an earlier LayerNorm computed, each (tokens, 1)."""
    found = np.asarray(FUNCTIONS[entry.name](variance, carried, parameters, 1e-6))
    given = {n: torch.tensor(p) for n, p in parameters.items()}
    torch_inputs = torch.from_numpy(variance), torch.from_numpy(carried)
    expected = TORCH_FUNCTIONS[entry.name](*torch_inputs, given, 1e-6).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-6)
