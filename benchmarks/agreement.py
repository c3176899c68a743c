"""The demo's digits model under MPC against the same model in the clear, on every protocol.

    python -m benchmarks.agreement           writes docs/results/agreement.json; about 15 minutes on two cores

Simulated: 100 test images on semi2k-benchmark, 20 on cheetah and on aby3; two processes: 5 on cheetah.
A disagreement is excused only where the plaintext's two best classes are closer than twice the largest error.
The second query of a session must cost no set-up: faster than the first, bytes and rounds as in a bench.
Finished images are kept, so that an interrupted command goes on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from privit.demo import build
from privit.serve.measure.bench import bench
from privit.serve.measure.evaluate import evaluate
from privit.serve.measure.private import evaluate_private
from privit.serve.parties.client import connect
from privit.serve.parties.processes import local_parties

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "agreement.json"
DEMO = ROOT / "runs" / "demo"
MAX_LOGIT_ERROR = 0.05
# Images and how many of them must agree, by protocol.
SIMULATED = {"semi2k-benchmark": (100, 99), "cheetah": (20, 20), "aby3": (20, 20)}
BETWEEN_PROCESSES = 5
# CHEETAH's bytes repeat to about 0.02 %; a session also refills oblivious transfers now and then.
SAME_BYTES = 0.02
SAME_ROUNDS = 10


def main() -> dict[str, Any]:
    """Measures what is missing; writes and returns the result."""
    build(DEMO, seed=0)
    artifact = DEMO / "artifact"
    result: dict[str, Any] = {"command": "python -m benchmarks.agreement", "simulated": {}}
    for protocol, (images, least) in SIMULATED.items():
        found = evaluate(artifact, "simulated", protocol, images=images, progress=_tell(protocol))
        found["holds"] = _agrees(found, least)
        result["simulated"][protocol] = found
    found = evaluate_private(artifact, images=BETWEEN_PROCESSES, progress=_tell("two processes"))
    found["holds"] = _agrees(found, BETWEEN_PROCESSES)
    result["processes"] = found
    result["second_query"] = second_query(artifact)
    parts = [*result["simulated"].values(), result["processes"], result["second_query"]]
    result["holds"] = all(part["holds"] for part in parts)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return result


def second_query(artifact: Path) -> dict[str, Any]:
    """What the first and the second query of a session cost, next to the online figures of a bench."""
    online = bench(artifact, "cheetah")
    image = np.zeros((8, 8), np.uint8)
    with (
        local_parties(artifact, DEMO / "state", "cheetah") as (server, _),
        connect(artifact / "client", server.address) as client,
    ):
        first, second = client.predict(image), client.predict(image)
        setup_seconds = client.setup.seconds
    off = abs(second.sent_bytes / online["sent_bytes"] - 1)
    rounds_off = abs(second.rounds - online["rounds"])
    return {
        "setup_seconds": setup_seconds,
        "first": {"sent_bytes": first.sent_bytes, "rounds": first.rounds, "seconds": first.seconds},
        "second": {"sent_bytes": second.sent_bytes, "rounds": second.rounds, "seconds": second.seconds},
        "bench": {"sent_bytes": online["sent_bytes"], "rounds": online["rounds"]},
        "bytes_off": off,
        "rounds_off": rounds_off,
        "holds": off <= SAME_BYTES and rounds_off <= SAME_ROUNDS and second.seconds < first.seconds,
    }


def _agrees(found: dict[str, Any], least: int) -> bool:
    agreed = round(found["agreement"] * found["images"])
    excused = all(d["margin"] < 2 * found["max_logit_error"] for d in found.get("disagreements", []))
    return agreed >= least and excused and found["max_logit_error"] <= MAX_LOGIT_ERROR


def _tell(title: str) -> Any:
    def tell(done: int, images: int) -> None:
        print(f"{title}: {done} of {images} images", flush=True)

    return tell


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
