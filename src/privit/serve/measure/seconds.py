"""Times fitted to counts of work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls


def fit_seconds(features: Sequence[tuple[float, ...]], seconds: Sequence[float]) -> tuple[float, ...]:
    """A coefficient for each feature by least squares of the relative error, none below zero."""
    wanted = np.asarray(seconds, dtype=np.float64)
    found, _ = nnls(np.asarray(features, dtype=np.float64) / wanted[:, None], np.ones(len(wanted)))
    return tuple(float(f"{coefficient:.6g}") for coefficient in found)
