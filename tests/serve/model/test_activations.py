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
    shapes = {"channel": (6,), "head": (4, 1)}
    parameters = {
        n: rng.standard_normal(shapes[per]).astype(np.float32) for n, per in entry.parameters.items()
    }
    for setting in ("erf", "tanh") if entry.kind == "gelu" else (6,):
        found = np.asarray(FUNCTIONS[entry.name](x, parameters, setting))
        given = {n: torch.from_numpy(p) for n, p in parameters.items()}
        expected = TORCH_FUNCTIONS[entry.name](torch.from_numpy(x), given, setting).numpy()
        np.testing.assert_allclose(found, expected, atol=2e-6, rtol=2e-6)
