"""What a client gets: an answer for each image, and what the query that gave it cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privit.artifact import Public
from privit.errors import OutsideRanges
from privit.program.ranges import believable, opened


@dataclass(frozen=True)
class Cost:
    """What was sent, measured at the tunnel.

    `sent_bytes` and `rounds` are the engine's own bytes and send actions: of the party that has more where
    there are two, of the client where there are three.
    `wire_bytes` is everything that crossed the client's tunnels in both directions, framing included.
    """

    sent_bytes: int
    rounds: int
    wire_bytes: int
    seconds: float


@dataclass(frozen=True)
class Prediction:
    """The answer to one query, in the order of the class names; only the client has it.

    `inside` says whether all values stayed in the ranges that the model was made for; outside, the answer may
    be wrong. It is None where the program has no guard.
    What was sent, and the seconds, are of the whole query, which answered `images` images.
    """

    class_name: str
    probabilities: tuple[float, ...]
    logits: tuple[float, ...]
    sent_bytes: int
    rounds: int
    wire_bytes: int
    seconds: float
    inside: bool | None = None
    images: int = 1


def prediction_of(public: Public, answer: np.ndarray, cost: Cost, images: int = 1) -> Prediction:
    """The prediction in what a client opened for one image (classes,), with the guard's bit if there is one.

    Without a guard, an answer that this model cannot have given, as far as its public ranges say, is
    refused; with one, it is given with `inside` False.
    """
    logits, inside = opened(public, answer)
    if inside is None and not believable(public.ranges, logits):
        raise OutsideRanges(
            "the answer is not one that this model can give: the image took values inside it beyond the "
            "ranges that its export measured, and fixed-point numbers have overflowed",
            "ask with images like those that the model was made for; if this one is, ask its owner to "
            "export the model again with more images",
        )
    shifted = np.exp(logits - logits.max())
    probabilities = shifted / shifted.sum()
    return Prediction(
        public.class_names[int(logits.argmax())],
        tuple(float(value) for value in probabilities),
        tuple(float(value) for value in logits),
        cost.sent_bytes,
        cost.rounds,
        cost.wire_bytes,
        cost.seconds,
        inside,
        images,
    )
