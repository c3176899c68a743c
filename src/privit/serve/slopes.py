"""How many one-way delays a send action takes, from one small model between processes at two delays."""

from __future__ import annotations

import tempfile
from pathlib import Path

from privit.artifact import Preprocessing, Public, save_artifact
from privit.plan import plan_from_counts
from privit.serve.bench import random_weights
from privit.serve.measure import measure_session
from privit.serve.shaping import Network
from privit.spec import vit_spec

DELAYS_MS = (20.0, 100.0)
BANDWIDTH_MBIT = 10_000.0


def measure_slope(protocol: str, delays_ms: tuple[float, float] = DELAYS_MS) -> float:
    """Seconds that one more second of one-way delay adds, per send action of a query.

    What both runs compute and send is the same, so the difference is the delay's alone.
    """
    spec = vit_spec(8, 4, 16, 1, 2, classes=3, channels=1)
    plan = plan_from_counts(spec, [1], [1])
    public = Public(spec, Preprocessing(8, 1, (0.0,), (1.0,)), ("a", "b", "c"))
    with tempfile.TemporaryDirectory(prefix="privit-slope-") as folder:
        save_artifact(Path(folder), public, plan, random_weights(public, plan, seed=0))
        runs = [
            measure_session(Path(folder), protocol, Network("", delay, BANDWIDTH_MBIT), queries=3)
            for delay in delays_ms
        ]
    seconds = [min(run["query_seconds"]) for run in runs]
    one_way = (delays_ms[1] - delays_ms[0]) / 2e3
    return (seconds[1] - seconds[0]) / (runs[1]["rounds"] * one_way)
