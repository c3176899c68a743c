"""Predicted seconds against real processes through the shaped tunnel, LAN and WAN: for an idle machine.

python -m benchmarks.predicted_seconds [PROTOCOL ...]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.predicted import models, plan_of, ranges_of
from privit.artifact import Preprocessing, Public, save_artifact
from privit.cost.spu import estimate_spu
from privit.cost.table import PROTOCOLS

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "predicted-seconds.json"
NETWORKS = ("lan", "wan")
MODEL, KIND = "digits", "searched"


def row(protocol: str, network: str) -> dict[str, Any]:
    """One query's seconds, predicted and measured, and how busy the machine was."""
    from privit.serve.bench import random_weights
    from privit.serve.measure import measure_session

    spec = models(protocol)[MODEL]
    plan, ranges = plan_of(spec, KIND), ranges_of(spec, KIND)
    names = tuple(str(i) for i in range(spec.classes))
    public = Public(spec, Preprocessing(spec.image_size, spec.channels, (0.5,), (0.5,)), names, ranges)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="privit-seconds-") as folder:
        save_artifact(Path(folder), public, plan, random_weights(public, plan, seed=0))
        real = measure_session(Path(folder), protocol, network, queries=3)
    guess = estimate_spu(spec, plan, protocol, network, ranges)
    seconds = min(real["query_seconds"][1:])
    found = {"predicted": guess["seconds"], "error_bar": guess["seconds_error"], "measured": seconds}
    traffic = {name: real[name] for name in ("sent_bytes", "rounds", "setup_seconds")}
    return found | {"difference": guess["seconds"] / seconds - 1, "load": load} | traffic


def main() -> int:
    """Measures, writes the results and prints the table."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for protocol in sys.argv[1:] or PROTOCOLS:
        for network in NETWORKS:
            entry = found[f"{protocol}/{network}"] = row(protocol, network)
            RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
            print(
                f"{protocol:18}{network:5}{entry['measured']:8.2f} s{entry['predicted']:8.2f} s predicted"
                f"{entry['difference']:+8.0%}  load {entry['load']:.1f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
