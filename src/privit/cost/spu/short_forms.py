"""How long the short exp, reciprocal and rsqrt of `serve/model/approximations.py` are for a public range.

Only the number of steps is worked out here, not the coefficients; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

VARIANCE_MARGINS = (1.5, 4.0)
SCORE_MARGIN = 1.5
SUM_MARGIN = 8.0
MAX_MEAN_EXP = 8.0
LEAST_SCORE = 0.01
MOST_SCORES = (200.0, 20.0)
EXP_TOLERANCE = 6e-3
ROOT_TOLERANCE = 3e-4
RECIPROCAL_TOLERANCE = 1e-3
ROOT_ROUNDS, ENGINE_ROOT_ROUNDS = 3, 26
FRACTION_BITS = 18
LEAST_SLOPE_STEPS = 16
EXP_NODES = 400


@dataclass(frozen=True)
class ScoreRange:
    """Scores less their row mean, and the row's mean exponential."""

    low: float
    high: float
    mean_exp: float


def score_range(ranges: Mapping[str, float], layer: int) -> ScoreRange | None:
    """What the exact rows' scores lie in, with margin; None where the artifact does not say."""
    names = [f"blocks.{layer}.softmax.{name}" for name in ("drop", "peak", "mean_exp")]
    if any(name not in ranges for name in names):
        return None
    drop, peak, mean_exp = (float(ranges[name]) for name in names)
    if mean_exp > MAX_MEAN_EXP or drop > MOST_SCORES[0] or peak > MOST_SCORES[1]:
        return None
    drop, peak = max(drop, LEAST_SCORE), max(peak, LEAST_SCORE)
    return ScoreRange(-SCORE_MARGIN * drop, SCORE_MARGIN * peak, SUM_MARGIN * max(1.0, mean_exp))


def root_steps(ranges: Mapping[str, float], norm: str, width: int, eps: float) -> int | None:
    """Steps of the short rsqrt behind a LayerNorm; None where the engine's own stands there."""
    low, high = ranges.get(f"{norm}.variance_low"), ranges.get(f"{norm}.variance_high")
    if low is None or high is None or not 0 < low <= high:
        return None
    least = low / VARIANCE_MARGINS[0] + eps
    ratio = (high * VARIANCE_MARGINS[1] + eps) / least
    shape = ratio + math.sqrt(ratio) + 1
    peak, end = 2 / 3 * shape * math.sqrt(shape / 3), shape - 1
    slope = 2 / (peak + end)
    error, steps = slope * peak - 1, 0
    while error > ROOT_TOLERANCE or steps == 0:
        error, steps = 1.5 * error**2 + 0.5 * error**3, steps + 1
        if ROOT_ROUNDS + 4 * steps >= ENGINE_ROOT_ROUNDS:
            return None
    # The line's slope has to be a number that fixed point can hold.
    resolved = round((slope / 2) ** (2 / 3) / (width * least) * 2**FRACTION_BITS)
    return steps if resolved >= LEAST_SLOPE_STEPS else None


def reciprocal_steps(found: ScoreRange) -> int:
    """Steps of the short reciprocal of a row's sum."""
    centre = (1 + found.mean_exp) / (found.mean_exp - 1)
    size = 2 * centre * centre - 1
    steps = 1
    while size ** -(2.0**steps) > RECIPROCAL_TOLERANCE:
        steps += 1
    return steps


@cache
def exp_squarings(found: ScoreRange) -> int:
    """How often the quartic of the short exp is squared."""
    grid = np.linspace(found.low, found.high, 4001)
    middle, half = (found.low + found.high) / 2, (found.high - found.low) / 2
    nodes = middle + half * np.cos(np.pi * (np.arange(EXP_NODES) + 0.5) / EXP_NODES)
    for squarings in range(1, 9):
        power = 2**squarings
        weight = np.exp(np.where(nodes < 0, nodes * (power - 1), -nodes) / power)
        domain = [found.low, found.high]
        fitted = np.polynomial.Chebyshev.fit(nodes, np.exp(nodes / power), 4, domain=domain, w=weight)
        value = fitted(grid) ** power
        if np.all(np.abs(value - np.exp(grid)) <= EXP_TOLERANCE * np.maximum(1, np.exp(grid))):
            return squarings
    return squarings
