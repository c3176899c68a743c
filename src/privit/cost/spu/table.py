"""The measured table of a protocol: what each operation sends, in how many rounds, and for how long."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from privit.cost.network import Network
from privit.cost.spu.shapes import round_features, second_features, traffic_features
from privit.errors import ArtifactError, RequestError

PROTOCOLS = ("cheetah", "aby3", "semi2k-benchmark")
FORMAT_VERSION = 1
# Of three equally uncertain values with a fixed sum the largest lies this many deviations above the mean, and
# of any two of them, where the third is far below.
LARGEST_OF_THREE = 1.036
LARGEST_OF_TWO = 0.691


@dataclass(frozen=True)
class Cost:
    """Bytes and send actions of each rank, computing seconds, and the variance of parts drawn at random.

    `transfer_bytes` are those of oblivious transfers, which have to be refilled now and then;
    `seconds_error` is how far the seconds may be off, in seconds.
    """

    sent_bytes: tuple[float, ...] = (0.0, 0.0)
    rounds: tuple[float, ...] = (0.0, 0.0)
    seconds: float = 0.0
    bytes_variance: float = 0.0
    rounds_variance: float = 0.0
    transfer_bytes: float = 0.0
    seconds_error: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            tuple(a + b for a, b in zip(self.sent_bytes, other.sent_bytes, strict=True)),
            tuple(a + b for a, b in zip(self.rounds, other.rounds, strict=True)),
            self.seconds + other.seconds,
            self.bytes_variance + other.bytes_variance,
            self.rounds_variance + other.rounds_variance,
            self.transfer_bytes + other.transfer_bytes,
            self.seconds_error + other.seconds_error,
        )

    @property
    def most_bytes(self) -> float:
        """Bytes of the party that sends more."""
        return _largest(self.sent_bytes, self.bytes_variance)

    @property
    def most_rounds(self) -> float:
        """Send actions of the party that has more."""
        return _largest(self.rounds, self.rounds_variance)


def _largest(ranks: tuple[float, ...], variance: float) -> float:
    """The largest of the ranks on average, where each varies so much around its mean."""
    deviation = variance**0.5
    apart = max(ranks) - min(ranks) > deviation
    return max(ranks) + (LARGEST_OF_TWO if apart else LARGEST_OF_THREE) * deviation


@dataclass(frozen=True)
class Entry:
    """One operation: coefficients over the features of `shapes.py`, a row per rank.

    Where parties take turns at random each has the mean over parties, and there is a variance.
    `seconds_error` is how far measured runs lay from the fitted seconds, as a share of them.
    `products` and `squares` say how many products of ciphertexts (CHEETAH) an operation makes of its values.
    """

    sent_bytes: tuple[tuple[float, ...], ...]
    rounds: tuple[tuple[float, ...], ...]
    seconds: tuple[float, ...] = ()
    seconds_error: float = 0.0
    bytes_variance: float = 0.0
    rounds_variance: float = 0.0
    products: int = 0
    squares: int = 0
    weight_products: int = 0
    rounds_parallel: float = 0.0


@dataclass(frozen=True)
class Table:
    """All of a protocol's measurements; `engine` and `date` say what they are of.

    In a program between processes operations take `program_factor` of what they take alone, and each send
    action `action_seconds` more, and `slope` one-way delays of the network.
    """

    protocol: str
    engine: str
    date: str
    private: bool
    setup_bytes: float
    setup_rounds: float
    slope: float
    operations: Mapping[str, Entry]
    machine: Mapping[str, Any] = field(default_factory=dict)
    ciphertexts: Mapping[str, Any] = field(default_factory=dict)
    action_seconds: float = 0.0
    program_factor: float = 1.0

    def entry(self, name: str) -> Entry:
        """The measurements of one operation."""
        if name not in self.operations:
            raise RequestError(
                f"the table of {self.protocol} has no operation {name!r}",
                "make a new table with privit calibrate",
            )
        return self.operations[name]

    def linear(self, name: str, sizes: tuple[int, ...], times: int = 1) -> Cost:
        """The cost of `times` calls of one operation, as far as it is linear in its sizes."""
        entry = self.entry(name)
        traffic, steps = traffic_features(name, sizes), round_features(name, sizes)
        size = max(traffic[-1], 1.0)
        seconds = times * _dot(entry.seconds, second_features(name, sizes)) if entry.seconds else 0.0
        return Cost(
            tuple(times * _dot(row, traffic) for row in entry.sent_bytes),
            tuple(times * _dot(row, steps) for row in entry.rounds),
            seconds,
            times * entry.bytes_variance * size * size,
            times * entry.rounds_variance * steps[0],
            seconds_error=seconds * entry.seconds_error,
        )

    def compute_seconds(self, cost: Cost) -> float:
        """How long it takes between processes where the network takes no time."""
        return self.program_factor * cost.seconds + self.action_seconds * cost.most_rounds

    def seconds(self, cost: Cost, where: Network) -> float:
        """How long it all takes over a network."""
        return where.seconds(self.compute_seconds(cost), cost.most_bytes, cost.most_rounds, self.slope)


def _dot(coefficients: tuple[float, ...], features: tuple[float, ...]) -> float:
    return sum(c * f for c, f in zip(coefficients, features, strict=True))


def fit(features: Sequence[tuple[float, ...]], values: Sequence[float]) -> tuple[float, ...]:
    """Least squares in relative error; coefficients that the data do not need come out as zero."""
    wanted = np.asarray(values, dtype=np.float64)
    matrix = np.asarray(features, dtype=np.float64)
    scale = 1 / np.maximum(np.abs(wanted), 1e-9)
    columns = np.abs(matrix * scale[:, None]).max(axis=0)
    columns[columns == 0] = 1
    found = np.linalg.lstsq(matrix * scale[:, None] / columns, wanted * scale, rcond=1e-9)[0] / columns
    return tuple(0.0 if abs(c) < 1e-7 else float(f"{c:.6g}") for c in found)


def fit_error(
    coefficients: Sequence[float], features: Sequence[tuple[float, ...]], values: Sequence[float]
) -> float:
    """How far the values lie from what was fitted, as a root mean square share of it."""
    fitted = [max(_dot(tuple(coefficients), f), 1e-9) for f in features]
    return round(float(np.sqrt(np.mean([(v / f - 1) ** 2 for v, f in zip(values, fitted, strict=True)]))), 4)


def save_table(table: Table, path: Path) -> None:
    """Writes the table as JSON that a person can read."""
    data: dict[str, Any] = {"format_version": FORMAT_VERSION} | vars(table)
    data["operations"] = {
        name: {key: value for key, value in vars(entry).items() if value not in (0, (), 0.0)}
        for name, entry in sorted(table.operations.items())
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def read_table(path: Path) -> Table:
    """Reads what `save_table` wrote."""
    try:
        return _table(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path.name} is not a cost table: {type(error).__name__} {error}",
            "make one with privit calibrate",
        ) from error


@lru_cache(maxsize=8)
def shipped_table(protocol: str) -> Table:
    """The table that comes with this package."""
    if protocol not in PROTOCOLS:
        raise RequestError(f"no protocol is called {protocol!r}", "known: " + ", ".join(PROTOCOLS))
    text = resources.files("privit.cost.spu").joinpath(f"tables/spu-{protocol}.json").read_text()
    return _table(json.loads(text))


def _table(data: dict[str, Any]) -> Table:
    if data.pop("format_version") != FORMAT_VERSION:
        raise ValueError("another format version")
    operations = {name: _entry(fields) for name, fields in data.pop("operations").items()}
    return Table(operations=operations, **data)


def _entry(fields: dict[str, Any]) -> Entry:
    made = dict(fields)
    for name in ("sent_bytes", "rounds"):
        made[name] = tuple(tuple(row) for row in made[name])
    if "seconds" in made:
        made["seconds"] = tuple(made["seconds"])
    return Entry(**made)
