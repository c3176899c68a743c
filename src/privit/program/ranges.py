"""Public ranges: what the artifact says about the values inside the model, and what that allows.

Keys of `Public.ranges` that this side reads, each the largest or smallest value that the export saw:

    {norm}.variance_low, {norm}.variance_high    of a LayerNorm's input (blocks.{i}.norm1, .norm2, norm)
    blocks.{i}.softmax.drop                      row mean less the smallest score, over the exact rows
    blocks.{i}.softmax.peak                      largest score less the row mean
    blocks.{i}.softmax.mean_exp                  mean of exp(score less row mean) over a row

A site whose keys are missing runs the engine's generic function. Both parties read the same file, the
handshake compares it, and nothing else about the data shapes the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Below its range a short rsqrt or reciprocal only converges less far; above, it diverges: hence the wide
# upper margins.
VARIANCE_MARGINS = (1.5, 4.0)
SCORE_MARGIN = 1.5
SUM_MARGIN = 8.0
MAX_MEAN_EXP = 8.0
"""Rows with a heavier tail than this tell too little about the next image: 2 of 359 digits had ten times the
largest mean exponential of the validation images. Their layers run the engine's generic softmax."""
LEAST_SCORE = 0.01
"""Scores that hardly differ are treated as if they did so much: no quartic can be fitted to a point."""
MOST_SCORES = (200.0, 20.0)
"""Largest drop and peak for which a short exp is found; wider rows run the engine's generic softmax.

A mean exponential of at most 8 over a million tokens has a peak below 16."""


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`."""

    low: float
    high: float


@dataclass(frozen=True)
class ScoreRange:
    """Scores less their row mean, and the row's mean exponential, which is at least 1."""

    low: float
    high: float
    mean_exp: float


def variance_range(ranges: Mapping[str, float], norm: str) -> Interval | None:
    """What the variance of a LayerNorm's input lies in, with margin; None if the artifact does not say."""
    low, high = ranges.get(f"{norm}.variance_low"), ranges.get(f"{norm}.variance_high")
    if low is None or high is None or not 0 < low <= high:
        return None
    return Interval(low / VARIANCE_MARGINS[0], high * VARIANCE_MARGINS[1])


def score_range(ranges: Mapping[str, float], layer: int) -> ScoreRange | None:
    """What the exact rows' scores lie in, with margin; None if unsaid or if the rows' tails are too heavy."""
    found = [ranges.get(f"blocks.{layer}.softmax.{name}") for name in ("drop", "peak", "mean_exp")]
    if any(value is None for value in found):
        return None
    drop, peak, mean_exp = (float(value) for value in found if value is not None)
    if mean_exp > MAX_MEAN_EXP or drop > MOST_SCORES[0] or peak > MOST_SCORES[1]:
        return None
    drop, peak = max(drop, LEAST_SCORE), max(peak, LEAST_SCORE)
    return ScoreRange(-SCORE_MARGIN * drop, SCORE_MARGIN * peak, SUM_MARGIN * max(1.0, mean_exp))


class RangeRecorder:
    """Collects the keys above from values as they pass; call it as the graph's `observe`."""

    def __init__(self) -> None:
        self.ranges: dict[str, float] = {}

    def __call__(self, name: str, value: np.ndarray) -> None:
        """Notes the input of a LayerNorm (..., width) or exact score rows (..., N)."""
        value = np.asarray(value, dtype=np.float64)
        centred = value - value.mean(axis=-1, keepdims=True)
        if name.endswith(".softmax"):
            self._raise(f"{name}.drop", float(-centred.min()))
            self._raise(f"{name}.peak", float(centred.max()))
            self._raise(f"{name}.mean_exp", float(np.exp(centred).mean(axis=-1).max()))
        else:
            variance = np.square(centred).mean(axis=-1)
            self._raise(f"{name}.variance_high", float(variance.max()))
            low = f"{name}.variance_low"
            self.ranges[low] = min(self.ranges.get(low, np.inf), float(variance.min()))

    def _raise(self, name: str, value: float) -> None:
        self.ranges[name] = max(self.ranges.get(name, -np.inf), value)
