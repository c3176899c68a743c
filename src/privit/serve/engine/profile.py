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
    `operations` maps the engine's operation to the traffic of the party that sends more of it.
    """

    ranks: tuple[Traffic, ...]
    operations: dict[str, Traffic] = field(default_factory=dict)
    seconds: float = 0.0

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
        )

    def to_json(self) -> dict[str, object]:
        """Plain data: totals, both ranks and every operation that sent anything."""
        return {
            "sent_bytes": self.sent_bytes,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "ranks": [rank.to_json() for rank in self.ranks],
            "operations": {
                name: traffic.to_json()
                for name, traffic in sorted(self.operations.items(), key=lambda item: -item[1].sent_bytes)
                if traffic.sent_bytes
            },
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
    for match in _OPERATION.finditer(text):
        sides = (
            Traffic(int(match["sent"]), int(match["sends"])),
            Traffic(int(match["received"]), int(match["receives"])),
        )
        name = match["name"].removeprefix("pphlo.")
        operations[name] = operations.get(name, Traffic()) + sides[more]
    return Counts(ranks, operations)


def read_all_parties(text: str) -> Counts:
    """Counts from what every rank logged into one file, in any order."""
    totals = [Traffic(int(m["sent"]), int(m["sends"])) for m in _TOTAL.finditer(text)]
    operations: dict[str, Traffic] = {}
    for match in _OPERATION.finditer(text):
        name = match["name"].removeprefix("pphlo.")
        here, known = Traffic(int(match["sent"]), int(match["sends"])), operations.get(name, Traffic())
        operations[name] = max(here, known, key=lambda t: (t.sent_bytes, t.rounds))
    return Counts(tuple(sorted(totals, key=lambda t: -t.sent_bytes)), operations)
