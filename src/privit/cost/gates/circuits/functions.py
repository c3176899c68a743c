"""Every nonlinearity as a circuit between two share masks, with its numpy reference and error bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from privit.cost.gates.circuits import fixed, float_functions, floating
from privit.cost.gates.circuits.fixed import FixedFormat
from privit.cost.gates.circuits.gates import Bits, Gates, Plain, from_wires, to_wires
from privit.cost.gates.circuits.shares import RECOVERIES, Recovery
from privit.errors import RequestError

DEFAULT_FRACTION = 12


@dataclass(frozen=True)
class Function:
    """One nonlinearity.

    `fixed_bound` is the largest error in units of the last place on fixed point; `float_bound` is the
    largest error in float32 relative to max(1, |result|). Both hold for inputs of the domain.
    """

    name: str
    vector: bool
    fixed: Callable[[Gates, FixedFormat, Bits], Bits]
    floating: Callable[[Gates, Bits], Bits]
    reference: Callable[[np.ndarray], np.ndarray]
    domain: str
    sample: Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
    fixed_bound: float
    float_bound: float


@dataclass(frozen=True)
class Setting:
    """In which numbers a circuit computes and how its ends are shared."""

    number: str
    recovery: Recovery
    fraction: int = DEFAULT_FRACTION

    @property
    def name(self) -> str:
        """For example fixed32-ring32 or float32-prime31."""
        return f"{self.number}-{self.recovery.name}"

    @property
    def form(self) -> FixedFormat:
        """The fixed-point format of the shared values."""
        return FixedFormat(self.recovery.width, self.fraction)

    @property
    def unit(self) -> float:
        """The distance between two neighbouring shared values."""
        return self.form.unit


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("fixed32", RECOVERIES["ring32"]),
        Setting("fixed31", RECOVERIES["prime31"]),
        Setting("float32", RECOVERIES["ring32"]),
        Setting("float32", RECOVERIES["prime31"]),
    )
}


def setting(name: str) -> Setting:
    """The setting of that name; refuses an unknown one."""
    if name not in SETTINGS:
        raise RequestError(f"no circuits are called {name!r}", f"known: {', '.join(SETTINGS)}")
    return SETTINGS[name]


def _scores(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape) * rng.uniform(0.1, 4, (shape[0], 1))


def _uniform(low: float, high: float) -> Callable[[np.random.Generator, tuple[int, int]], np.ndarray]:
    return lambda rng, shape: rng.uniform(low, high, shape)


def _either_sign(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.uniform(0.01, 300, shape) * rng.choice((-1, 1), shape)


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _relu_softmax(x: np.ndarray) -> np.ndarray:
    values = np.maximum(x, 0)
    return values / (values.sum(axis=1, keepdims=True) + 1e-3)


def _two_quad(x: np.ndarray) -> np.ndarray:
    squares = (x + 5) ** 2
    return squares / squares.sum(axis=1, keepdims=True)


def _layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)


def gelu_erf(x: np.ndarray) -> np.ndarray:
    """x Phi(x), the GELU of most checkpoints."""
    return x * 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(-x / math.sqrt(2))


def _entry(
    name: str,
    reference: Callable,
    domain: str,
    sample: Callable,
    bounds: tuple[float, float],
    vector: bool = False,
) -> Function:
    fixed_bound, float_bound = bounds
    on_fixed, on_float = getattr(fixed, name), getattr(float_functions, name)
    return Function(name, vector, on_fixed, on_float, reference, domain, sample, fixed_bound, float_bound)


_ANY = "any value whose result fits"
_SPREAD = "standard deviation above 2^-4, at most 1024 lanes"
FUNCTIONS: dict[str, Function] = {
    f.name: f
    for f in (
        _entry("relu", lambda x: np.maximum(x, 0), _ANY, _uniform(-1000, 1000), (0, 0)),
        _entry("square", np.square, "|x| < 2^9", _uniform(-500, 500), (1, 6e-8)),
        # Fixed point tabulates x Phi(x); float32 computes the tanh form and is checked against that.
        _entry("gelu", gelu_erf, _ANY, _uniform(-12, 12), (1, 3e-7)),
        _entry("exp", np.exp, "x <= 0", _uniform(-20, 0), (1.5, 1.5e-7)),
        _entry("reciprocal", np.reciprocal, "x != 0", _either_sign, (1, 6e-8)),
        _entry("reciprocal_square_root", lambda x: 1 / np.sqrt(x), "x > 0", _uniform(0.01, 300), (1, 1.2e-7)),
        _entry("maximum", lambda x: x.max(axis=1, keepdims=True), _ANY, _scores, (0, 0), True),
        _entry("softmax", _softmax, _ANY, _scores, (2, 5e-7), True),
        _entry("relu_softmax", _relu_softmax, _ANY, _scores, (2, 3e-7), True),
        _entry("two_quad", _two_quad, "not every x is -5", _scores, (2, 3e-7), True),
        _entry("layer_norm", _layer_norm, _SPREAD, _scores, (5, 2e-6), True),
    )
}


def function(name: str) -> Function:
    """The function of that name; refuses an unknown one."""
    if name not in FUNCTIONS:
        raise RequestError(f"no circuit computes {name!r}", f"known: {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]


def compute(gates: Gates, entry: Function, where: Setting, value: Bits) -> Bits:
    """The function between two conversions, from a recovered value to one that can be masked."""
    # A ReLU needs no arithmetic, so nothing is gained by making a float of its input.
    if where.number != "float32" or entry.name == "relu":
        return entry.fixed(gates, where.form, value)
    x = floating.from_integer(gates, value, where.fraction)
    return floating.to_integer(gates, entry.floating(gates, x), where.recovery.width, where.fraction)


def masked(gates: Gates, entry: Function, where: Setting, first: Bits, second: Bits, mask: Bits) -> Bits:
    """The circuit DELPHI needs: shares in, function, mask added, share out."""
    value = where.recovery.recover(gates, first, second)
    return where.recovery.mask(gates, compute(gates, entry, where, value), mask)


def evaluate_masked(
    entry: Function, where: Setting, values: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, Plain]:
    """What the circuit gives on freshly shared `values` (batch, lanes) once unmasked, and its counts."""
    first, second, mask = draw_inputs(entry, where, values, rng)
    gates = Plain()
    out = masked(gates, entry, where, *input_wires(where, first, second, mask))
    result = where.recovery.signed(from_wires(out).astype(np.int64) - mask)
    return result * where.unit, gates


def draw_inputs(
    entry: Function, where: Setting, values: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two shares of the values, and a mask for each result."""
    first, second = where.recovery.share(where.form.round(values), rng)
    lanes = 1 if entry.name == "maximum" else values.shape[1]
    mask = rng.integers(0, where.recovery.modulus, (len(values), lanes), dtype=np.int64)
    return first, second, mask


def input_wires(
    where: Setting, first: np.ndarray, second: np.ndarray, mask: np.ndarray
) -> tuple[Bits, Bits, Bits]:
    """Shares and mask as wires, prepared as each owner prepares its own."""
    recovery = where.recovery
    first, second = recovery.open_shares(first, second)
    return (
        to_wires(first, recovery.width),
        to_wires(second, recovery.width),
        to_wires(recovery.open_mask(mask), recovery.mask_width),
    )


@cache
def count(function_name: str, setting_name: str, length: int = 1) -> Plain:
    """Gates of one masked function on a vector of `length` values, by running it once."""
    entry, where = function(function_name), setting(setting_name)
    # A circuit's gates do not depend on the values on its wires.
    _, gates = evaluate_masked(entry, where, np.ones((1, length)), np.random.default_rng(0))
    return gates
