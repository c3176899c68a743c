"""What an execution sent, read from the text that the engine logs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPERATION = re.compile(
    r"- (?P<name>[\w.]+), executed (?P<times>\d+) times, duration (?P<seconds>[\d.e+-]+)s, "
    r"send bytes (?P<sent>\d+) recv bytes (?P<received>\d+), "
    r"send actions (?P<sends>\d+), recv actions (?P<receives>\d+)"
)
_TOTAL = re.compile(
    r"Link details: total send bytes (?P<sent>\d+), recv bytes (?P<received>\d+), "
    r"send actions (?P<sends>\d+), recv actions (?P<receives>\d+)"
)

NAMES = ("server", "client", "helper")
"""The parties by rank."""


@dataclass(frozen=True)
class Traffic:
    """What one party sent."""

    sent_bytes: int = 0
    rounds: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.sent_bytes + other.sent_bytes, self.rounds + other.rounds)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.sent_bytes - other.sent_bytes, self.rounds - other.rounds)

    def to_json(self) -> dict[str, int]:
        """Bytes and send actions."""
        return {"sent_bytes": self.sent_bytes, "rounds": self.rounds}


@dataclass(frozen=True)
class Counts:
    """What an execution cost.

    `ranks` holds each party's traffic: by rank for two parties; for three the engine's
    log does not say who is who, and they stand from most bytes to fewest.
    `operations` maps the engine's operation to the traffic of the party that sends more of it, and
    `operation_seconds` to how long it took: at the server, which waits for the client where it must, or with
    three parties at the slowest. `computing` is each party's processor time by rank, of the
    thread that runs its program: the engine's helper threads, which all parties of a process share,
    are in `processor_seconds` alone.
    """

    ranks: tuple[Traffic, ...]
    operations: dict[str, Traffic] = field(default_factory=dict)
    seconds: float = 0.0
    operation_seconds: dict[str, float] = field(default_factory=dict)
    computing: tuple[float, ...] = ()
    processor_seconds: float = 0.0

    @property
    def sent_bytes(self) -> int:
        """Bytes sent by the party that sends more."""
        return max((rank.sent_bytes for rank in self.ranks), default=0)

    @property
    def rounds(self) -> int:
        """The engine's send actions, of the party that has more."""
        return max((rank.rounds for rank in self.ranks), default=0)

    def __add__(self, other: Counts) -> Counts:
        names = sorted(self.operations.keys() | other.operations.keys())
        nothing = Traffic()
        return Counts(
            tuple(a + b for a, b in zip(self.ranks, other.ranks, strict=True)),
            {n: self.operations.get(n, nothing) + other.operations.get(n, nothing) for n in names},
            self.seconds + other.seconds,
            {n: self.operation_seconds.get(n, 0.0) + other.operation_seconds.get(n, 0.0) for n in names},
            tuple(a + b for a, b in zip(self.computing, other.computing, strict=True)),
            self.processor_seconds + other.processor_seconds,
        )

    def parties(self) -> list[dict[str, object]]:
        """Each party's seconds: computing, and the rest, waiting for others, for helper threads or a core."""
        return [
            {"name": name, "computing_seconds": own, "waiting_seconds": max(0.0, self.seconds - own)}
            for name, own in zip(NAMES, self.computing, strict=False)
        ]

    def by_operation(self) -> dict[str, dict[str, float]]:
        """Every operation with its traffic and seconds, what takes longest first."""
        order = sorted(
            self.operations.items(),
            key=lambda item: (-self.operation_seconds.get(item[0], 0.0), -item[1].sent_bytes),
        )
        return {n: t.to_json() | {"seconds": self.operation_seconds.get(n, 0.0)} for n, t in order}

    def to_json(self) -> dict[str, object]:
        """Plain data: totals, all ranks and every operation."""
        return {
            "sent_bytes": self.sent_bytes,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            "ranks": [rank.to_json() for rank in self.ranks],
            "parties": self.parties(),
            "operations": self.by_operation(),
        }


def read_two_party(text: str) -> Counts:
    """Both parties' counts from what rank 0 logged: what it received, the other sent."""
    total = _TOTAL.search(text)
    if total is None:
        raise ValueError("the engine's log holds no link details")
    ranks = (
        Traffic(int(total["sent"]), int(total["sends"])),
        Traffic(int(total["received"]), int(total["receives"])),
    )
    more = 0 if ranks[0].sent_bytes >= ranks[1].sent_bytes else 1
    operations: dict[str, Traffic] = {}
    seconds: dict[str, float] = {}
    for match in _OPERATION.finditer(text):
        sides = (
            Traffic(int(match["sent"]), int(match["sends"])),
            Traffic(int(match["received"]), int(match["receives"])),
        )
        name = match["name"].removeprefix("pphlo.")
        operations[name] = operations.get(name, Traffic()) + sides[more]
        seconds[name] = seconds.get(name, 0.0) + float(match["seconds"])
    return Counts(ranks, operations, operation_seconds=seconds)


def read_all_parties(text: str) -> Counts:
    """Counts from what every rank logged into one file, in any order."""
    totals = [Traffic(int(m["sent"]), int(m["sends"])) for m in _TOTAL.finditer(text)]
    operations: dict[str, Traffic] = {}
    seconds: dict[str, float] = {}
    for match in _OPERATION.finditer(text):
        name = match["name"].removeprefix("pphlo.")
        here, known = Traffic(int(match["sent"]), int(match["sends"])), operations.get(name, Traffic())
        operations[name] = max(here, known, key=lambda t: (t.sent_bytes, t.rounds))
        seconds[name] = max(seconds.get(name, 0.0), float(match["seconds"]))
    ranks = tuple(sorted(totals, key=lambda t: -t.sent_bytes))
    return Counts(ranks, operations, operation_seconds=seconds)
