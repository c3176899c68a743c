"""Cost profiles: what one operator costs, as published or as counted from our own circuits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from privit.cost.gates.counts import LAYER_NORM
from privit.errors import RequestError
from privit.operators import DEGREES, TABLE

WITHOUT_SQUARE = "-without-square"
DEFAULT_CIRCUITS = "fixed32-ring32"

Cost = Callable[[int], float]
LINEAR = (*DEGREES, "static", "reused")
"""The families whose operators cost the squares they have, if any: each party does the rest alone."""


@dataclass(frozen=True)
class Profile:
    """The cost of each operator as a function of the length of the vector it works on.

    GELU-kind operators have length 1; softmax-kind operators the number of tokens; norm-kind operators the
    width. `published` holds the lengths for which a cost is a given number: elsewhere it is
    extrapolated. It is None where every length is counted.
    """

    name: str
    unit: str
    source: str
    costs: Mapping[str, Cost]
    published: Mapping[str, tuple[int, ...]] | None = None
    final_norm: bool = True

    def cost(self, operator: str, length: int) -> float:
        """The cost of one `operator` on a vector of `length` values."""
        if operator not in self.costs:
            raise RequestError(
                f"the profile {self.name} has no cost for {operator!r}", "add it to cost/gates/profiles.py"
            )
        return self.costs[operator](length)

    def extrapolated(self, operator: str, length: int) -> bool:
        """Whether that cost was derived rather than published or counted."""
        if self.published is None or self.cost(operator, length) == 0:
            return False
        return length not in self.published.get(operator, ())


# PriViT (Dhyani et al. 2023), appendix "Latency benchmarks", table "Non-linearity cost normalized to the
# cost of one ReluOp": AND gates of DELPHI's online garbled circuits over those of one ReLU.
PAPER_CONSTANTS: dict[str, dict[int, int]] = {
    "relu": {1: 1},
    "gelu": {1: 270},
    "softmax": {197: 18586},
    "relu_softmax": {65: 1133, 257: 4428},
    LAYER_NORM: {192: 6504, 256: 8614},
    "squared_attn": {197: 3248},
}


def _through(points: dict[int, int]) -> Cost:
    """The published numbers, and between and beyond them a line; one point alone is scaled by length."""
    if len(points) == 1:
        ((length, cost),) = points.items()
        return lambda n: cost * n / length
    (n1, c1), (n2, c2) = sorted(points.items())
    return lambda n: c1 + (c2 - c1) * (n - n1) / (n2 - n1)


def _free(length: int) -> float:
    return 0


def _polynomials(square: Cost) -> dict[str, Cost]:
    """Polynomials cost their squares: what is linear each party does alone.

    A polynomial of the variance has those of the variance. A reused factor costs nothing: that a token is
    multiplied with it is a product, which the protocol does outside of the garbled circuit.
    """
    return {
        entry.name: square if entry.family == "square" or entry.name == "linear_norm" else _free
        for entry in TABLE
        if entry.family in LINEAR
    }


def _paper(square: bool) -> Profile:
    costs: dict[str, Cost] = {name: _through(points) for name, points in PAPER_CONSTANTS.items()}
    squared = costs["squared_attn"] if square else _free
    relu_softmax = costs["relu_softmax"]
    costs |= _polynomials(squared)
    # Not published: a ReLU-softmax with its ReLUs taken out and squares put in.
    costs["two_quad"] = lambda n: relu_softmax(n) - n + squared(n)
    return Profile(
        "paper" + ("" if square else WITHOUT_SQUARE),
        "relu_ops",
        "PriViT (Dhyani et al. 2023), appendix Latency benchmarks"
        + ("" if square else ", with the x^2 of SquaredAttn counted as free"),
        costs,
        {name: tuple(points) for name, points in PAPER_CONSTANTS.items()},
        # The paper's totals count two LayerNorms a block and not the last one.
        final_norm=False,
    )


@lru_cache(maxsize=1)
def counted_table() -> dict[str, dict[str, dict[str, int]]]:
    """The shipped counts: setting, function and length to AND gates (made by benchmarks.circuits)."""
    text = resources.files("privit.cost.gates").joinpath("circuits.json").read_text()
    return json.loads(text)["and_gates"]


def and_gates(function: str, setting: str, length: int) -> int:
    """AND gates of one function between shares, from the shipped table or, if absent there, counted now."""
    known = counted_table().get(setting, {}).get(function, {}).get(str(length))
    if known is not None:
        return known
    from privit.cost.gates.circuits.functions import count

    return count(function, setting, length).ands


def _circuits(setting: str, square: bool) -> Profile:
    def counted(function: str) -> Cost:
        return lambda n: and_gates(function, setting, n)

    # A circuit is called like the operator that it computes.
    functions = [entry.name for entry in TABLE if entry.family not in LINEAR]
    costs = {function: counted(function) for function in functions}
    # A row of squares is as many single squares; the linear part of a quadratic is free.
    squared: Cost = (lambda n: n * and_gates("square", setting, 1)) if square else _free
    costs |= _polynomials(squared)
    return Profile(
        f"circuits-{setting}" + ("" if square else WITHOUT_SQUARE),
        "and_gates",
        "privit.cost.gates.circuits, AND gates of half-gates garbling with share recovery and re-masking",
        costs,
    )


def profile_names() -> list[str]:
    """Every profile that `profile` knows; each circuits profile is also there without squares."""
    return ["paper", *(f"circuits-{setting}" for setting in counted_table())]


def profile(name: str) -> Profile:
    """The profile of that name.

    `paper` and `circuits-NUMBER-RECOVERY`, each also with the ending `-without-square`, which counts
    the squares of stand-ins as free: they are, where the protocol multiplies with triples.
    """
    base = name.removesuffix(WITHOUT_SQUARE)
    square = base == name
    if base == "paper":
        return _paper(square)
    if base == "circuits":
        return _circuits(DEFAULT_CIRCUITS, square)
    setting = base.removeprefix("circuits-")
    if setting != base and setting in counted_table():
        return _circuits(setting, square)
    raise RequestError(f"no cost profile is called {name!r}", f"known: {', '.join(profile_names())}, spu")
