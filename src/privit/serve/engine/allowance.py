"""How many engine bytes another party may send: what the program needs is known before it runs.

The engine keeps every message until someone asks for it, so a party that sends messages under keys that
nobody asks for would fill this side's memory. The tunnel counts, and ends a session that goes beyond.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from privit.artifact import Artifact
from privit.cost.spu.predict import estimate_spu
from privit.errors import PrivitError
from privit.plan import all_weight_shapes

MARGIN = 2.0
"""Predictions lie within a few percent; a session's parties do not meet the rest."""
SLACK_BYTES = 64 << 20
"""Once a session: products and transfers are prepared in batches, which one query pays for another."""
ACTION_BYTES = 1024
"""What the link adds to a message: its head, the other side's answer to it, and their frames."""
SHARE_BYTES = 16
"""Of one value of an input: aby3 sends two ring elements to each party."""


@dataclass(frozen=True)
class Allowance:
    """Engine bytes that one other party may send: until the first query, and with each query more."""

    setup_bytes: float
    query_bytes: float


UNBOUNDED = Allowance(math.inf, math.inf)


def allowance_of(artifact: Artifact, protocol: str, images: int = 1) -> Allowance:
    """Twice what the cost model predicts for queries of so many images.

    Unbounded, and logged, where it cannot predict the plan.
    """
    spec, plan = artifact.spec, artifact.plan
    try:
        public = artifact.public
        cost = estimate_spu(spec, plan, protocol, ranges=public.ranges, guard=public.guard, batch=images)
    except PrivitError as error:
        logging.warning("engine messages are not bounded, their size is not known: %s", error.message)
        return UNBOUNDED
    weights = sum(math.prod(shape) for shape in all_weight_shapes(spec, plan).values())
    pixels = images * spec.channels * spec.image_size**2
    setup = cost["setup_bytes"] + cost["setup_rounds"] * ACTION_BYTES + weights * SHARE_BYTES
    query = cost["sent_bytes"] + cost["rounds"] * ACTION_BYTES + pixels * SHARE_BYTES
    return Allowance(MARGIN * setup + SLACK_BYTES, MARGIN * query)
