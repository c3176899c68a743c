"""What the link between real processes adds to a query: seconds for each action and byte, and for a delay."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privit.artifact import Preprocessing, Public, save_artifact
from privit.cost.network import LOOPBACK, Network
from privit.cost.table import fit_seconds
from privit.plan import plan_from_counts
from privit.serve.bench import random_image, random_weights
from privit.serve.compile import client_values, compile_program, server_values
from privit.serve.measure import measure_queries
from privit.serve.protocols import protocol
from privit.serve.runtime import Simulator
from privit.spec import Spec, vit_spec

DELAYS_MS = (20.0, 60.0)
REPEATS = 4
DELAYED_REPEATS = 2
# One has many actions for its bytes, the other many bytes for its actions: together they tell the two apart.
NARROW = vit_spec(8, 4, 16, 2, 2, classes=3, channels=1)
WIDE = vit_spec(24, 4, 96, 1, 3, classes=3, channels=1)


@dataclass(frozen=True)
class Link:
    """`slope` is how many one-way delays an action takes; the others are of a link without any delay."""

    slope: float
    action_seconds: float
    byte_seconds: float


def measure_link(protocol_name: str) -> Link:
    """Fits the three from two small models, simulated and between processes through the tunnel.

    A simulation computes the same without a link, so the difference of the two is the link's; and queries
    over two delays differ by the delay alone.
    """
    delays = [(Network(delay), DELAYED_REPEATS) for delay in DELAYS_MS]
    narrow = _compared(NARROW, protocol_name, delays)
    wide = _compared(WIDE, protocol_name, [])
    features = [(float(found["rounds"]), float(found["sent_bytes"])) for found in (narrow, wide)]
    over = [max(found["between_processes"] - found["simulated"], 1e-3) for found in (narrow, wide)]
    action_seconds, byte_seconds = fit_seconds(features, over)
    one_way = (DELAYS_MS[1] - DELAYS_MS[0]) / 2e3
    slope = (narrow["delayed"][1] - narrow["delayed"][0]) / (narrow["rounds"] * one_way)
    return Link(round(slope, 3), action_seconds, byte_seconds)


def _compared(spec: Spec, protocol_name: str, delays: list[tuple[Network, int]]) -> dict[str, Any]:
    """The least seconds of one model's query: simulated, between processes, and over each delay."""
    plan = plan_from_counts(spec, [1] * spec.depth, [1] * spec.depth)
    preprocessing = Preprocessing(spec.image_size, spec.channels, (0.0,), (1.0,))
    public = Public(spec, preprocessing, tuple(str(i) for i in range(spec.classes)))
    weights, pixels = random_weights(public, plan, seed=0), random_image(public, seed=0)
    found = protocol(protocol_name)
    program = compile_program(public, plan, found)
    with Simulator(found) as simulator:
        simulator.give(program.inputs, server_values(public, plan, weights) | client_values(public, pixels))
        simulated = min(simulator.run(program.executable).seconds for _ in range(REPEATS))
    with tempfile.TemporaryDirectory(prefix="privit-link-") as folder:
        save_artifact(Path(folder), public, plan, weights)
        near, *far = measure_queries(Path(folder), protocol_name, [(LOOPBACK, REPEATS), *delays], pixels)
    return {
        "simulated": simulated,
        "between_processes": min(near["query_seconds"]),
        "delayed": [min(run["query_seconds"]) for run in far],
        "rounds": near["rounds"],
        "sent_bytes": near["sent_bytes"],
    }
