"""What running between real processes adds to a query's operations: for each action, and for a delay."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Preprocessing, Public, save_artifact
from privit.cost.network import LOOPBACK, Network
from privit.cost.spu import query_cost
from privit.cost.table import Table
from privit.plan import plan_from_counts
from privit.serve.bench import random_image, random_weights
from privit.serve.measure import measure_queries
from privit.spec import Spec, vit_spec

DELAYS_MS = (20.0, 60.0)
REPEATS = 4
DELAYED_REPEATS = 2
LEAST_SECONDS = 1e-3
# From many actions for what is computed to few.
MODELS = (
    vit_spec(8, 4, 16, 2, 2, classes=3, channels=1),
    vit_spec(16, 4, 48, 2, 3, classes=3, channels=1),
    vit_spec(24, 4, 96, 1, 3, classes=3, channels=1),
)


@dataclass(frozen=True)
class Link:
    """`slope` is how many one-way delays an action takes, `action_seconds` what it takes without a delay.

    `models` are the measurements behind them.
    """

    slope: float
    action_seconds: float
    models: list[dict[str, Any]]


def measure_link(table: Table) -> Link:
    """Fits the two from small models between processes, whose operations the table knows alone.

    Queries over two delays differ by the delay alone, whatever they compute.
    """
    delays = [(Network(delay), DELAYED_REPEATS) for delay in DELAYS_MS]
    models = [_measured(spec, table, [] if i else delays) for i, spec in enumerate(MODELS)]
    # The middle of three: what else the machine does can spoil one.
    over = [max(found["seconds"] - found["alone"], LEAST_SECONDS) / found["rounds"] for found in models]
    action_seconds = float(f"{np.median(over):.4g}")
    one_way = (DELAYS_MS[1] - DELAYS_MS[0]) / 2e3
    near, far = models[0]["delayed"]
    return Link(round((far - near) / (models[0]["rounds"] * one_way), 3), action_seconds, models)


def _measured(spec: Spec, table: Table, delays: list[tuple[Network, int]]) -> dict[str, Any]:
    """One model's query: what its operations take alone, and the least seconds between processes."""
    plan = plan_from_counts(spec, [1] * spec.depth, [1] * spec.depth)
    preprocessing = Preprocessing(spec.image_size, spec.channels, (0.0,), (1.0,))
    public = Public(spec, preprocessing, tuple(str(i) for i in range(spec.classes)))
    weights, pixels = random_weights(public, plan, seed=0), random_image(public, seed=0)
    with tempfile.TemporaryDirectory(prefix="privit-link-") as folder:
        save_artifact(Path(folder), public, plan, weights)
        near, *far = measure_queries(Path(folder), table.protocol, [(LOOPBACK, REPEATS), *delays], pixels)
    return {
        "alone": round(query_cost(table, spec, plan).seconds, 4),
        "seconds": min(near["query_seconds"]),
        "delayed": [min(run["query_seconds"]) for run in far],
        "rounds": near["rounds"],
    }
