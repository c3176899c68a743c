"""Short forms of the exact functions: what each computes, for which range, and what it makes the parties do.

The GELU needs no range. exp, reciprocal and rsqrt are short only because the range of
their input is public (`ranges.py`); without one, the engine's generic functions stand in their place.
Coefficients are rounded, so that both parties compile the same program whatever their C library.

A form is called with an array and its module, numpy or jax.numpy; `record` notes the operations of that call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from privit.program.operation import Recorder
from privit.program.ranges import FRACTION_BITS, ScoreRange

Array = Any
Module = Any

COEFFICIENT_DIGITS = 6
EXP_TOLERANCE = 6e-3
EXP_NODES = 400
EXP_REWEIGHTINGS = 10
ROOT_TOLERANCE = 3e-4
RECIPROCAL_TOLERANCE = 1e-3
LEAST_SLOPE_STEPS = 16
"""Fewer steps of fixed point than this would bend the line away from where it fits."""
ROOT_ROUNDS = 3
"""Send actions before the first step: one product with a constant, one product."""
ENGINE_ROOT_ROUNDS = 26
"""Send actions of the engine's rsqrt, as measured."""
# A row's sum of exponentials is steered here, where fixed point resolves it and its reciprocal alike.
SUM_MIDDLE = 4.0


@dataclass(frozen=True)
class Quartic:
    """A monic quartic as (y + z + b)(y + c) + d with y = (z + a)^2: two products, no product with a constant.

    The form is Knuth's (The Art of Computer Programming, volume 2, 4.6.4), with y completed to a square.
    """

    a: float
    b: float
    c: float
    d: float

    def __call__(self, z: Array, xp: Module) -> Array:
        y = xp.square(z + self.a)
        return (y + z + self.b) * (y + self.c) + self.d

    def record(self, note: Recorder, values: int) -> None:
        """The operations of a call on so many values."""
        note("square", values)
        note("multiply", values)


def monic_quartic(coefficients: tuple[float, float, float, float]) -> Quartic:
    """The quartic z^4 + b3 z^3 + b2 z^2 + b1 z + b0, from (b3, b2, b1, b0)."""
    b3, b2, b1, b0 = coefficients
    a = (b3 - 1) / 4
    # With w = z^2 + 2 a z = y - a^2, the classical form is (w + z + beta)(w + gamma) + d.
    total = b2 - 2 * a * (2 * a + 1)
    gamma = b1 - 2 * a * total
    beta = total - gamma
    return Quartic(*_rounded(a, beta - a * a, gamma - a * a, b0 - beta * gamma))


def _rounded(*values: float) -> tuple[float, ...]:
    return tuple(float(f"{value:.{COEFFICIENT_DIGITS - 1}e}") for value in values)


# -z Phi(-z) on [0, GELU_BOUND] with the least maximum error, highest power first; what lies beyond the bound
# takes the value at the bound. GELU(x) = max(x, 0) - |x| Phi(-|x|), and |x| = 2 max(x, 0) - x.
GELU_BOUND = 3.2
GELU_COEFFICIENTS = (0.02125961, -0.18527355, 0.54328183, -0.5388413, 0.00166925)
GELU_MAX_ERROR = 2e-3
GELU_SCALE = round(GELU_COEFFICIENTS[0] ** (1 / 3), COEFFICIENT_DIGITS)
"""The server scales the hidden values by this, which makes the quartic monic; the next weights undo it."""


@cache
def _gelu_quartic() -> Quartic:
    # scale * p(u / scale) is monic because scale^3 is the leading coefficient.
    scale, (_, p3, p2, p1, p0) = GELU_SCALE, GELU_COEFFICIENTS
    return monic_quartic((p3 / scale**2, p2 / scale, p1, p0 * scale))


def scaled_gelu(u: Array, xp: Module) -> Array:
    """GELU_SCALE * GELU(u / GELU_SCALE) to GELU_SCALE * GELU_MAX_ERROR: two comparisons, four products."""
    positive = xp.maximum(u, 0.0)
    size = xp.minimum(positive + positive - u, GELU_BOUND * GELU_SCALE)
    return positive + _gelu_quartic()(size, xp)


def record_scaled_gelu(note: Recorder, values: int) -> None:
    """The operations of `scaled_gelu`."""
    for name in ("compare_public", "multiply_bit", "compare_public", "select"):
        note(name, values)
    _gelu_quartic().record(note, values)


def gelu(x: Array, xp: Module) -> Array:
    """GELU(x) to GELU_MAX_ERROR, for hidden values that no weight has scaled."""
    return scaled_gelu(x * GELU_SCALE, xp) * (1 / GELU_SCALE)


def record_gelu(note: Recorder, values: int) -> None:
    """The operations of `gelu`."""
    note("multiply_public", values)
    record_scaled_gelu(note, values)
    note("multiply_public", values)


@dataclass(frozen=True)
class ShortExp:
    """exp(x) * `factor` on [low, high] as a quartic squared `squarings` times; its input is `scale` * x."""

    scale: float
    quartic: Quartic
    squarings: int
    factor: float

    def __call__(self, z: Array, xp: Module) -> Array:
        value = self.quartic(z, xp)
        for _ in range(self.squarings):
            value = xp.square(value)
        return value

    def record(self, note: Recorder, values: int) -> None:
        """The operations of a call on so many values."""
        self.quartic.record(note, values)
        for _ in range(self.squarings):
            note("square", values)


@cache
def short_exp(low: float, high: float, factor: float) -> ShortExp:
    """The shortest form whose error is below EXP_TOLERANCE * max(1, exp(x)) on [low, high].

    A softmax row of mean zero has a mean exponential of at least 1, so that is an error relative to the row.
    """
    grid = np.linspace(low, high, 4001)
    for squarings in range(1, 9):
        found = _exp_form(low, high, factor, squarings)
        value = found(found.scale * grid, np) / factor
        if np.all(np.abs(value - np.exp(grid)) <= EXP_TOLERANCE * np.maximum(1, np.exp(grid))):
            return found
    return found


def _exp_form(low: float, high: float, factor: float, squarings: int) -> ShortExp:
    power = 2**squarings
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(EXP_NODES) + 0.5) / EXP_NODES)
    # What an error of the quartic becomes after the squarings, relative to max(1, exp(x)).
    weight = np.exp(np.where(nodes < 0, nodes * (power - 1), -nodes) / power)
    fitted = np.polynomial.Chebyshev.fit(nodes, np.exp(nodes / power), 4, domain=[low, high], w=weight)
    # Lawson's iteration: weights that follow the error turn least squares into least maximum.
    follow = np.ones_like(nodes)
    for _ in range(EXP_REWEIGHTINGS):
        error = np.abs(fitted(nodes) ** power - np.exp(nodes)) / np.maximum(1, np.exp(nodes))
        follow = follow * error / (follow * error).mean()
        fitted = np.polynomial.Chebyshev.fit(
            nodes, np.exp(nodes / power), 4, domain=[low, high], w=weight * np.sqrt(follow)
        )
    coefficients = fitted.convert(kind=np.polynomial.Polynomial).coef * factor ** (1 / power)
    p0, p1, p2, p3, p4 = (float(c) for c in coefficients)
    (scale,) = _rounded(p4**0.25)
    quartic = monic_quartic((p3 / scale**3, p2 / scale**2, p1 / scale, p0))
    return ShortExp(scale, quartic, squarings, factor)


def score_exp(tokens: int, scores: ScoreRange) -> ShortExp:
    """The short exp for rows of that many scores; q carries its scale."""
    return short_exp(scores.low, scores.high, sum_range(tokens, scores)[0])


def sum_range(tokens: int, scores: ScoreRange) -> tuple[float, float, float]:
    """A factor for the exponentials, and the range of a row's sum of them under that factor.

    The exponentials of a row of mean zero have a mean of at least 1 (Jensen).
    """
    low, high = float(tokens), tokens * scores.mean_exp
    factor = float(f"{SUM_MIDDLE / math.sqrt(low * high):.6e}")
    return factor, low * factor, high * factor


@dataclass(frozen=True)
class ShortReciprocal:
    """1 / x on [low, high] by Goldschmidt's iteration from a Chebyshev start."""

    start_slope: float
    start_offset: float
    error_slope: float
    error_shift: float
    error_offset: float
    steps: int

    def __call__(self, x: Array, xp: Module) -> Array:  # (rows, 1)
        parts = x @ xp.array([[self.start_slope, self.error_slope]], x.dtype)  # (rows, 2)
        value = parts[:, :1] + self.start_offset
        error = xp.square(parts[:, 1:] + self.error_shift) - self.error_offset
        for step in range(self.steps):
            if step + 1 == self.steps:
                return value + value * error
            # Side by side, so that the two products of a step share their rounds.
            both = xp.concatenate([value, error], axis=1) * xp.concatenate([error, error], axis=1)
            value, error = value + both[:, :1], both[:, 1:]
        return value

    def record(self, note: Recorder, rows: int) -> None:
        """The operations of a call on so many rows."""
        note("multiply_public", 2 * rows)
        note("square", rows)
        for step in range(self.steps):
            note("multiply", rows if step + 1 == self.steps else 2 * rows)


@cache
def short_reciprocal(low: float, high: float) -> ShortReciprocal:
    """1 / x to RECIPROCAL_TOLERANCE (relative) on [low, high]."""
    middle, half = (low + high) / 2, (high - low) / 2
    centre = -middle / half
    # 1 - x y0(x) = T2(t) / T2(centre) with t = (x - middle) / half and y0 linear.
    size = 2 * centre * centre - 1
    steps = 1
    while size ** -(2.0**steps) > RECIPROCAL_TOLERANCE:
        steps += 1
    root = math.sqrt(2 / size)
    slope, offset = _rounded(-2 / (half * half * size), -4 * centre / (half * size))
    error_slope, error_shift, error_offset = _rounded(root / half, centre * root, 1 / size)
    return ShortReciprocal(slope, offset, error_slope, error_shift, error_offset, steps)


def sum_reciprocal(tokens: int, scores: ScoreRange) -> ShortReciprocal:
    """The short reciprocal of a row's sum of what `score_exp` gives."""
    _, low, high = sum_range(tokens, scores)
    return short_reciprocal(low, high)


@dataclass(frozen=True)
class ShortRoot:
    """`factor` / sqrt(x) on [low, high] by Goldschmidt's iteration from the best straight line."""

    slope: float
    offset: float
    steps: int
    factor: float

    def __call__(self, x: Array, xp: Module) -> Array:  # (rows, 1)
        scaled = x * self.slope
        half_root = self.offset - scaled
        root = (scaled + scaled) * half_root
        for step in range(self.steps):
            correction = 0.5 - root * half_root
            if step + 1 == self.steps:
                return half_root + half_root * correction
            both = xp.concatenate([root, half_root], axis=1)
            both = both + both * xp.concatenate([correction, correction], axis=1)
            root, half_root = both[:, :1], both[:, 1:]
        return half_root

    def record(self, note: Recorder, rows: int) -> None:
        """The operations of a call on so many rows."""
        note("multiply_public", rows)
        note("multiply", rows)
        for step in range(self.steps):
            note("multiply", rows)
            note("multiply", rows if step + 1 == self.steps else 2 * rows)


@cache
def short_root(low: float, high: float) -> ShortRoot | None:
    """factor / sqrt(x) to ROOT_TOLERANCE (relative) on [low, high]; None where the engine's own is as short.

    The line offset - u with u = slope * x starts at 1 / (2 sqrt(u)); slope is chosen so that its
    coefficient is one, and the result is 1 / (2 sqrt(slope x)).
    """
    ratio = high / low
    # The line A - B t for 1 / sqrt(t) on [1, ratio] whose relative error has equal ripple.
    shape = ratio + math.sqrt(ratio) + 1
    peak, end = 2 / 3 * shape * math.sqrt(shape / 3), shape - 1
    slope = 2 / (peak + end)
    error, steps = slope * peak - 1, 0
    while error > ROOT_TOLERANCE or steps == 0:
        error, steps = 1.5 * error**2 + 0.5 * error**3, steps + 1
        if ROOT_ROUNDS + 4 * steps >= ENGINE_ROOT_ROUNDS:
            return None
    # With t = x / low and u = m t, the line becomes (A - B u / m) / (2 sqrt(m)): its slope is one
    # where B = 2 m sqrt(m). The factor belongs to the slope that fixed point really multiplies by.
    m = (slope / 2) ** (2 / 3)
    step = round(m / low * 2**FRACTION_BITS)
    if step < LEAST_SLOPE_STEPS:
        return None
    offset = slope * shape / (2 * math.sqrt(m))
    real = step / 2**FRACTION_BITS
    return ShortRoot(real, _rounded(offset)[0], steps, 0.5 / math.sqrt(real))
