"""From switch values to kept sites: by threshold, or by rank within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privit.errors import BudgetError


def active(values: Sequence[np.ndarray], epsilon: float) -> int:
    """How many switches are above `epsilon`."""
    return sum(int(np.count_nonzero(v > epsilon)) for v in values)


def keep_above(values: Sequence[np.ndarray], epsilon: float) -> list[np.ndarray]:
    """Which sites stay if every switch above `epsilon` does, one boolean array per layer."""
    return [np.asarray(v > epsilon) for v in values]


def keep_ranked(
    values: Sequence[np.ndarray], budget: int, history: Sequence[np.ndarray] | None = None
) -> list[np.ndarray]:
    """Which sites stay if the `budget` largest values do, one boolean array per layer: exactly that many.

    `history` decides between equal switches, of which there are many at 0: what stayed up longer stays.
    What is still equal is taken in site order, so that every machine cuts the same plan.
    """
    flat = np.concatenate([np.ravel(v) for v in values])
    if not 0 <= budget <= flat.size:
        raise BudgetError(
            f"budget is {budget}, but the model has {flat.size} sites", f"give 0 to {flat.size}"
        )
    past = np.zeros(flat.size) if history is None else np.concatenate([np.ravel(h) for h in history])
    order = np.lexsort((np.arange(flat.size), -past, -flat))
    mask = np.zeros(flat.size, dtype=bool)
    mask[order[:budget]] = True
    ends = np.cumsum([np.size(v) for v in values])[:-1]
    return [part.reshape(np.shape(v)) for part, v in zip(np.split(mask, ends), values, strict=True)]
