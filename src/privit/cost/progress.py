"""How far a private query is: what has been sent, of what `privit cost` predicts for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privit.artifact import Artifact
from privit.cost.spu.predict import estimate_spu
from privit.errors import PrivitError

EARLY_SHARE = 0.1
"""Below this share of the way the predicted seconds say more than those that have passed."""
NEARLY = 0.99
"""The share of work that has sent all that was predicted and is not done: predictions are means."""


@dataclass(frozen=True)
class Expected:
    """What a piece of work will send, and how long it takes.

    `seconds` is None for a set-up: it mostly computes, and what it has sent says nothing of what is left.
    """

    sent_bytes: float
    rounds: float
    seconds: float | None = None

    def times(self, count: int) -> Expected:
        """So many of these, one after another."""
        seconds = None if self.seconds is None else count * self.seconds
        return Expected(count * self.sent_bytes, count * self.rounds, seconds)


@dataclass(frozen=True)
class Forecast:
    """A session's set-up, paid once, and one of its queries; None where no table predicts the plan."""

    setup: Expected | None = None
    query: Expected | None = None


@dataclass(frozen=True)
class Progress:
    """What has been sent so far in so many seconds, and of how much."""

    sent_bytes: float
    rounds: float
    seconds: float
    expected: Expected | None = None

    @property
    def share(self) -> float | None:
        """The part of the way that is done, below 1; None where nothing was predicted.

        Bytes come in few large steps and rounds in many small ones: their mean moves evenly.
        """
        if self.expected is None or min(self.expected.sent_bytes, self.expected.rounds) <= 0:
            return None
        of_bytes = min(1.0, self.sent_bytes / self.expected.sent_bytes)
        of_rounds = min(1.0, self.rounds / self.expected.rounds)
        return min(NEARLY, (of_bytes + of_rounds) / 2)

    @property
    def seconds_left(self) -> float | None:
        """From this machine's own pace; at the beginning, where that says little, from the prediction."""
        share = self.share
        if share is None or self.expected is None or self.expected.seconds is None:
            return None
        if share >= EARLY_SHARE:
            return self.seconds * (1 - share) / share
        return max(0.0, self.expected.seconds - self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Plain data with the same names."""
        expected = self.expected
        return {
            "sent_bytes": round(self.sent_bytes),
            "rounds": round(self.rounds),
            "seconds": self.seconds,
            "share": self.share,
            "seconds_left": self.seconds_left,
            "expected_bytes": None if expected is None else round(expected.sent_bytes),
            "expected_rounds": None if expected is None else round(expected.rounds),
        }


def forecast(artifact: Artifact, protocol: str, batch: int = 1) -> Forecast:
    """What a session with this artifact will send, from the shipped table; seconds are those of a LAN.

    A query of it answers a whole batch of images.
    """
    ranges, guard = artifact.public.ranges, artifact.public.guard
    try:
        cost = estimate_spu(artifact.spec, artifact.plan, protocol, ranges=ranges, guard=guard, batch=batch)
    except PrivitError:
        # A plan that no table knows is still served: its progress has no end in sight.
        return Forecast()
    return Forecast(
        Expected(cost["setup_bytes"], cost["setup_rounds"]),
        Expected(cost["sent_bytes"], cost["rounds"], cost["seconds"]),
    )
