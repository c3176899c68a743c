"""Networks: what one adds to a prediction's time, and the two that everything is shown for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from privit.errors import RequestError

LONGEST_RTT_MS = 10_000.0


@dataclass(frozen=True)
class Network:
    """Round-trip time in milliseconds and bandwidth in megabits a second, each way."""

    rtt_ms: float
    bandwidth_mbit: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.rtt_ms < LONGEST_RTT_MS and self.bandwidth_mbit > 0):
            raise RequestError(
                f"a network of {self.rtt_ms:g} ms and {self.bandwidth_mbit:g} Mbit/s does not exist",
                f"give 0 to {LONGEST_RTT_MS:g} ms and a bandwidth above 0, such as 40,100",
            )

    @property
    def one_way_seconds(self) -> float:
        """How long a message is under way."""
        return self.rtt_ms / 2e3

    @property
    def bytes_per_second(self) -> float:
        """How much goes through in each direction."""
        return self.bandwidth_mbit * 1e6 / 8

    def seconds(self, compute_seconds: float, sent_bytes: float, rounds: float, slope: float = 1.0) -> float:
        """compute + bytes / bandwidth + rounds x RTT/2 x slope.

        `rounds` are send actions, each of which waits for one way; `slope` is how many one-way
        delays an action really takes, fitted for each protocol.
        """
        return compute_seconds + sent_bytes / self.bytes_per_second + rounds * self.one_way_seconds * slope

    def to_json(self) -> dict[str, Any]:
        """Plain data; a bandwidth of null is no limit."""
        limited = math.isfinite(self.bandwidth_mbit)
        return {
            "name": next((name for name, known in PRESETS.items() if known == self), ""),
            "rtt_ms": self.rtt_ms,
            "bandwidth_mbit": self.bandwidth_mbit if limited else None,
        }

    def __str__(self) -> str:
        return f"{self.rtt_ms:g} ms, {self.bandwidth_mbit:g} Mbit/s"


LOOPBACK = Network(0.0)
"""This machine alone: nothing is delayed."""
# Set by us: 384 MB/s and 0.3 ms, 44 MB/s and 40 ms. The script with which the authors of Cheetah shape theirs
# (scripts/throttle.sh of OpenCheetah) has 3000 Mbit/s and 0.3 ms, 400 Mbit/s and 40 ms.
NETWORKS: dict[str, Network] = {"lan": Network(0.3, 3072.0), "wan": Network(40.0, 352.0)}
PRESETS = NETWORKS | {"loopback": LOOPBACK}


def network(text: str) -> Network:
    """A preset by name, or "RTT,BANDWIDTH" in milliseconds and megabits a second."""
    if text.lower() in PRESETS:
        return PRESETS[text.lower()]
    try:
        rtt_ms, bandwidth_mbit = (float(part) for part in text.split(","))
    except ValueError:
        raise RequestError(
            f"the network is {text!r}, but lan, wan or RTT,BANDWIDTH was expected",
            "give milliseconds and Mbit/s, such as 40,100",
        ) from None
    return Network(rtt_ms, bandwidth_mbit)
