"""Public ranges: what the artifact says about the values inside the model, and what that allows.

Keys of `Public.ranges` that shape the program, each the largest or smallest value that the export saw:

    {norm}.variance_low, {norm}.variance_high    of a LayerNorm's input (blocks.{i}.norm1, .norm2, norm)
    blocks.{i}.softmax.drop                      row mean less the smallest score, over the exact rows
    blocks.{i}.softmax.peak                      largest score less the row mean
    blocks.{i}.softmax.mean_exp                  mean of exp(score less row mean) over a row
    guard.*                                      bounds of what the guard watches (`guard.py`)
    margin.below, margin.above                   how far beyond variances may lie, where a guard watches them

`variance_keys` and `score_keys` spell them, for whoever measures them (the export in torch, a bench here) and
for whoever reads them. A site whose keys are missing runs the engine's generic function. Both parties read
the same file, the handshake compares it, and nothing else about the data shapes the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privit.artifact import Public

RING_BITS = 64
FRACTION_BITS = 18
"""Of the engine's fixed point: a number is a multiple of 2 to the minus this."""

# Below its range a short rsqrt or reciprocal only converges less far; above, it diverges: hence the wide
# upper margins.
VARIANCE_MARGINS = (1.5, 4.0)
"""Below and above measured variances, where nobody would notice a variance beyond."""
WATCHED_MARGINS = {"margin.below": 1.25, "margin.above": 1.5}
"""The same where a guard flags what lies beyond: of 4,200 images none did, measured on 800 others by hand
(docs/engine.md), and an rsqrt of one or two steps less serves the range."""
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


GUARD = "guard."
"""Before the names of values that the guard watches; as keys of ranges, their bounds (`guard.py`)."""

LOGITS = "logits"
"""The key of the largest absolute logit that the export saw."""
LOGIT_MARGIN = 4.0
"""How much larger a logit may be on an unseen image; beyond, values have wrapped or a short form diverged."""


INSIDE_ABOVE = 0.5
"""The guard's bit is opened as a number, 1 or 0."""


def believable(ranges: Mapping[str, float], logits: np.ndarray) -> bool:
    """Whether a model with these ranges can have given these logits; any finite ones if nothing is known."""
    limit = LOGIT_MARGIN * ranges.get(LOGITS, np.inf)
    return bool(np.isfinite(logits).all() and np.abs(logits).max() <= limit)


def opened(public: Public, answer: np.ndarray) -> tuple[np.ndarray, bool | None]:
    """The logits that a client opened, and whether all values were in range: None without a guard.

    Logits that the model cannot have given are outside whatever the guard says.
    """
    if not public.guard:
        return answer, None
    logits = answer[:-1]
    return logits, bool(answer[-1] > INSIDE_ABOVE) and believable(public.ranges, logits)


class VarianceKeys(NamedTuple):
    """Under what the variance of a LayerNorm's input is kept."""

    low: str
    high: str


class ScoreKeys(NamedTuple):
    """Under what the scores of a layer's exact rows are kept."""

    drop: str
    peak: str
    mean_exp: str


def variance_keys(norm: str) -> VarianceKeys:
    """The keys of one LayerNorm: blocks.{i}.norm1, blocks.{i}.norm2 or norm."""
    return VarianceKeys(f"{norm}.variance_low", f"{norm}.variance_high")


def score_keys(block: str) -> ScoreKeys:
    """The keys of one block: blocks.{i}."""
    return ScoreKeys(*(f"{block}.softmax.{name}" for name in ScoreKeys._fields))


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
    low, high = (ranges.get(key) for key in variance_keys(norm))
    if low is None or high is None or not 0 < low <= high:
        return None
    below, above = (ranges.get(k, m) for k, m in zip(WATCHED_MARGINS, VARIANCE_MARGINS, strict=True))
    return Interval(low / below, high * above)


def unwatched(ranges: Mapping[str, float]) -> dict[str, float]:
    """The ranges for a program without a guard, which keeps the wide margins."""
    return {name: value for name, value in ranges.items() if name not in WATCHED_MARGINS}


def score_range(ranges: Mapping[str, float], layer: int) -> ScoreRange | None:
    """What the exact rows' scores lie in, with margin; None if unsaid or if the rows' tails are too heavy."""
    keys = score_keys(f"blocks.{layer}")
    if any(ranges.get(key) is None for key in keys):
        return None
    drop, peak, mean_exp = (float(ranges[key]) for key in keys)
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
        if name.startswith(GUARD):
            return
        value = np.asarray(value, dtype=np.float64)
        centred = value - value.mean(axis=-1, keepdims=True)
        if name.endswith(".softmax"):
            keys = score_keys(name.removesuffix(".softmax"))
            self._raise(keys.drop, float(-centred.min()))
            self._raise(keys.peak, float(centred.max()))
            self._raise(keys.mean_exp, float(np.exp(centred).mean(axis=-1).max()))
        else:
            variance, (low, high) = np.square(centred).mean(axis=-1), variance_keys(name)
            self._raise(high, float(variance.max()))
            self.ranges[low] = min(self.ranges.get(low, np.inf), float(variance.min()))

    def _raise(self, name: str, value: float) -> None:
        self.ranges[name] = max(self.ranges.get(name, -np.inf), value)
