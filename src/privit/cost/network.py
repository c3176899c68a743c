"""What a network adds to a prediction's time."""

from __future__ import annotations

from dataclasses import dataclass

from privit.errors import RequestError


@dataclass(frozen=True)
class Network:
    """Round-trip time in milliseconds and bandwidth in megabits a second, each way."""

    rtt_ms: float
    bandwidth_mbit: float

    def __post_init__(self) -> None:
        if not (self.rtt_ms >= 0 and self.bandwidth_mbit > 0):
            raise RequestError(
                f"a network of {self.rtt_ms} ms and {self.bandwidth_mbit} Mbit/s does not exist",
                "give a round-trip time of 0 or more and a bandwidth above 0",
            )

    def seconds(self, compute_seconds: float, sent_bytes: float, rounds: float, slope: float = 1.0) -> float:
        """compute + bytes / bandwidth + rounds x RTT/2 x slope.

        `rounds` are send actions, each of which waits for one way; `slope` is how many one-way
        delays an action really takes, fitted for each protocol.
        """
        transfer = 8 * sent_bytes / (self.bandwidth_mbit * 1e6)
        return compute_seconds + transfer + rounds * self.rtt_ms / 2e3 * slope

    def __str__(self) -> str:
        return f"{self.rtt_ms:g} ms, {self.bandwidth_mbit:g} Mbit/s"


# The two settings of Cheetah's evaluation (Huang et al. 2022): 384 MB/s and 0.3 ms; 44 MB/s and 40 ms.
NETWORKS: dict[str, Network] = {"lan": Network(0.3, 3072), "wan": Network(40, 352)}


def network(text: str) -> Network:
    """A preset by name, or "RTT,BANDWIDTH" in milliseconds and megabits a second."""
    if text.lower() in NETWORKS:
        return NETWORKS[text.lower()]
    parts = text.split(",")
    try:
        rtt_ms, bandwidth_mbit = (float(part) for part in parts)
    except ValueError:
        raise RequestError(
            f"{text!r} is not a network",
            f"give {', '.join(NETWORKS)}, or RTT,BANDWIDTH such as 40,100 (milliseconds, Mbit/s)",
        ) from None
    return Network(rtt_ms, bandwidth_mbit)
