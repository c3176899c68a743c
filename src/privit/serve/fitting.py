"""Times fitted to counts of work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls


def fit_shares(features: Sequence[tuple[float, ...]], seconds: Sequence[float]) -> list[float]:
    """A coefficient of at least zero for each feature, by least squares of the relative error."""
    wanted = np.asarray(seconds, dtype=np.float64)
    found, _ = nnls(np.asarray(features, dtype=np.float64) / wanted[:, None], np.ones(len(wanted)))
    return [float(coefficient) for coefficient in found]
