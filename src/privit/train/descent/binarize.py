"""From switch values to kept sites: by threshold, or by rank within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def active(values: Sequence[np.ndarray], epsilon: float) -> int:
    """How many switches are above `epsilon`."""
    return sum(int(np.count_nonzero(v > epsilon)) for v in values)


def keep_above(values: Sequence[np.ndarray], epsilon: float) -> list[np.ndarray]:
    """Which sites stay if every switch above `epsilon` does, one boolean array per layer."""
    return [np.asarray(v > epsilon) for v in values]


def keep_ranked(values: Sequence[np.ndarray], history: Sequence[np.ndarray], budget: int) -> list[np.ndarray]:
    """Which sites stay if the `budget` largest switches do: exactly that many.

    `history` decides between equal switches, of which there are many at 0: what stayed up longer stays.
    What is still equal is taken in site order, so that every machine cuts the same plan.
    """
    flat = np.concatenate([np.ravel(v) for v in values])
    past = np.concatenate([np.ravel(h) for h in history])
    order = np.lexsort((np.arange(flat.size), -past, -flat))
    mask = np.zeros(flat.size, dtype=bool)
    mask[order[:budget]] = True
    return split_like(mask, values)


def split_like(flat: np.ndarray, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One flat array cut into arrays shaped like `values`."""
    ends = np.cumsum([np.size(v) for v in values])[:-1]
    return [part.reshape(np.shape(v)) for part, v in zip(np.split(flat, ends), values, strict=True)]
