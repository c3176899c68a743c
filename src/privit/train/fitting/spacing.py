"""Which LayerNorms stay exact: never too many reused ones in a row.

What one reused LayerNorm loses says little about a run of them: between two exact ones nothing brings a token
back to its size, and the polynomials around grow on what is left. On a DeiT-Tiny without exact GELU or
softmax, the ten that lose most alone left eleven in a row and training diverged; ten spread evenly lost three
points less before training, and trained (docs/fitted.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privit.presets import MOST_REUSED


def spaced(values: Sequence[np.ndarray], budget: int) -> list[np.ndarray]:
    """Which sites (places,) of each layer stay: exactly `budget`, the first among them, of the largest sum.

    Between two that stay there are at most MOST_REUSED others, or as few as the budget allows.
    """
    flat = np.concatenate(values)
    # The first stays whatever it is worth, which may be so much that nothing else would count.
    flat[0] = 0.0
    mask = np.zeros(flat.size, dtype=bool)
    if budget > 0:
        gap = max(MOST_REUSED, -(-(flat.size - budget) // budget))
        mask[_best(flat, min(budget, flat.size), gap)] = True
    return np.split(mask, np.cumsum([len(layer) for layer in values])[:-1])


def _best(values: np.ndarray, count: int, gap: int) -> list[int]:
    """The places of `count` values of the largest sum, the first among them, with gaps of at most `gap`."""
    size = len(values)
    # best[k, i]: the largest sum of k places of which i is the last.
    best = np.full((count + 1, size), -np.inf)
    came = np.zeros((count + 1, size), dtype=int)
    best[1, 0] = values[0]
    for k in range(2, count + 1):
        for i in range(k - 1, size):
            before = best[k - 1, max(0, i - gap - 1) : i]
            j = int(np.argmax(before))
            best[k, i] = before[j] + values[i]
            came[k, i] = max(0, i - gap - 1) + j
    last = max(0, size - gap - 1) + int(np.argmax(best[count, max(0, size - gap - 1) :]))
    found = [last]
    for k in range(count, 1, -1):
        found.append(int(came[k, found[-1]]))
    return found[::-1]
