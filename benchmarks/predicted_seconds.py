"""Predicted seconds against real processes through the shaped tunnel, LAN and WAN: for an idle machine.

    python -m benchmarks.predicted_seconds [--protocol cheetah] [--plan digits/searched]
    python -m benchmarks.predicted_seconds --show        # the table alone, with today's predictions

All parties and the tunnel between them run on this machine, and so did those that the shipped tables were
calibrated with: another machine needs its own table (privit calibrate).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.predicted import models, plan_of, ranges_of
from privit.artifact import Preprocessing, Public, save_artifact
from privit.cost.spu.predict import estimate_spu
from privit.cost.spu.table import PROTOCOLS

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "predicted-seconds.json"
TOLERANCE = 0.25
QUERIES = {"lan": 3, "wan": 1}
PLANS = ("digits/searched", "digits/mixed", "small32/dense-rewritten", "deit-tiny/searched")
"""Three models and three kinds of plan; with three protocols twelve, none of which a table was fitted on."""


def measured(protocol: str, name: str, networks: Sequence[str]) -> dict[str, Any]:
    """The seconds of every query over each network, and how busy the machine was before."""
    from privit.serve.measure.bench import random_weights
    from privit.serve.measure.sessions import measure_queries

    model, kind = name.split("/")
    spec = models(protocol)[model]
    plan, ranges = plan_of(spec, kind), ranges_of(spec, kind)
    names = tuple(str(i) for i in range(spec.classes))
    half = (0.5,) * spec.channels
    public = Public(spec, Preprocessing(spec.image_size, spec.channels, half, half), names, ranges)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="privit-seconds-") as folder:
        save_artifact(Path(folder), public, plan, random_weights(public, plan, seed=0))
        runs = measure_queries(Path(folder), protocol, [(network, QUERIES[network]) for network in networks])
    kept = ("query_seconds", "query_rounds", "sent_bytes", "rounds")
    found = {network: {key: run[key] for key in kept} for network, run in zip(networks, runs, strict=True)}
    return found | {"setup_seconds": runs[0]["setup_seconds"], "load": load}


def predicted(protocol: str, name: str, network: str) -> dict[str, float]:
    """What the shipped table says of the same query."""
    model, kind = name.split("/")
    spec = models(protocol)[model]
    graph = kind if kind.startswith("dense") else "all"
    ranges = ranges_of(spec, kind)
    found = estimate_spu(spec, plan_of(spec, kind), protocol, network, ranges, rewrites=graph)
    return {key: found[key] for key in ("seconds", "compute_seconds", "seconds_error", "rounds")}


def show(found: dict[str, Any]) -> int:
    """Prints the table; returns how many rows miss the tolerance."""
    print(f"{'protocol':18}{'plan':24}{'network':9}{'measured':>10}{'predicted':>11}{'off':>7}  load before")
    missed = 0
    for key, entry in sorted(found.items()):
        protocol, name = key.split("/", 1)
        for network in QUERIES:
            # The least of a few queries: what else the machine does only ever adds.
            real, guess = min(entry[network]["query_seconds"]), predicted(protocol, name, network)
            off = guess["seconds"] / real - 1
            missed += abs(off) > TOLERANCE
            print(
                f"{protocol:18}{name:24}{network:9}{real:8.2f} s{guess['seconds']:9.2f} s{off:+7.0%}"
                f"  {entry['load']:.1f}{'' if abs(off) <= TOLERANCE else '  MISSED'}"
            )
    return missed


def main() -> int:
    """Measures what is asked for, writes the results and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=PROTOCOLS)
    parser.add_argument("--plan", choices=PLANS)
    parser.add_argument("--network", choices=tuple(QUERIES))
    parser.add_argument("--show", action="store_true", help="print the table alone")
    wanted = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not wanted.show:
        for protocol in [wanted.protocol] if wanted.protocol else PROTOCOLS:
            for name in [wanted.plan] if wanted.plan else PLANS:
                print(protocol, name, file=sys.stderr, flush=True)
                networks = [wanted.network] if wanted.network else list(QUERIES)
                key = f"{protocol}/{name}"
                found[key] = found.get(key, {}) | measured(protocol, name, networks)
                RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 1 if show(found) else 0


if __name__ == "__main__":
    sys.exit(main())
