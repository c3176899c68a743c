"""A model under real private inference on this machine: how often it is right, and what a session costs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Artifact, load_artifact, public_hash
from privit.data import Split, load_data
from privit.errors import RequestError
from privit.images import preprocess
from privit.serve.addresses import part_of, state_folder
from privit.serve.client import Client, connect
from privit.serve.compile import client_values, server_values
from privit.serve.forward import forward
from privit.serve.graph import Graph
from privit.serve.processes import local_parties
from privit.serve.protocols import require_private

Progress = Callable[[int, int], None]


def evaluate_private(
    artifact_folder: Path,
    data: str | None = None,
    images: int = 20,
    protocol: str = "cheetah",
    progress: Progress | None = None,
    record: Path | None = None,
) -> dict[str, Any]:
    """Accuracy between two real processes, and agreement with the same model in the clear.

    Every finished image is kept in a record, so that the same call goes on where it stopped.

    Args:
        artifact_folder: the whole artifact: the server gets server/, the client client/.
        data: a data set; the one that the model was trained on unless given.
        images: how many test images, from the first on.
        progress: called with images done and images asked for.
        record: file of finished images; in the user's state directory unless given.
    """
    found = require_private(protocol, "eval --on private")
    artifact = load_artifact(part_of(artifact_folder, "server"))
    name = data or str(artifact.public.notes.get("data", ""))
    if not name:
        raise RequestError("the artifact does not say what it was trained on", "give --data")
    test = load_data(name).test
    count = min(images, len(test))
    record = record or state_folder() / "evaluations" / f"{_identity(artifact, name, protocol)}.jsonl"
    rows = _read_record(record)
    if missing := [i for i in range(count) if i not in rows]:
        record.parent.mkdir(parents=True, exist_ok=True)
        with (
            local_parties(artifact_folder, record.with_suffix(".state"), protocol) as (server, helper),
            connect(Path(artifact_folder), server.address, protocol, helper=helper) as client,
            record.open("a") as file,
        ):
            if file.tell():
                file.write("\n")  # an interruption may have cut the last line short
            for done, i in enumerate(missing, count - len(missing) + 1):
                rows[i] = _evaluate_one(client, artifact, test, i)
                file.write(json.dumps(rows[i]) + "\n")
                file.flush()
                if progress is not None:
                    progress(done, count)
    return _summary([rows[i] for i in range(count)]) | {
        "data": name,
        "protocol": protocol,
        "private": found.private,
        "measured_on": "processes",
    }


def _evaluate_one(client: Client, artifact: Artifact, test: Split, i: int) -> dict[str, Any]:
    image = test.image(i)
    answer = client.predict(image)
    clear = clear_logits(artifact, preprocess(image, artifact.public.preprocessing))
    first, second = np.sort(clear)[::-1][:2]
    return {
        "image": i,
        "label": int(test.labels[i]),
        "private": int(np.argmax(answer.logits)),
        "clear": int(np.argmax(clear)),
        "logit_error": float(np.abs(np.asarray(answer.logits) - clear).max()),
        "margin": float(first - second),
        "sent_bytes": answer.sent_bytes,
        "rounds": answer.rounds,
        "seconds": answer.seconds,
        "setup_bytes": client.setup.sent_bytes,
        "setup_rounds": client.setup.rounds,
    }


def clear_logits(artifact: Artifact, pixels: np.ndarray) -> np.ndarray:
    """The logits that the program would give without the engine's fixed-point numbers."""
    assert artifact.weights is not None
    public, plan = artifact.public, artifact.plan
    values = server_values(public, plan, artifact.weights) | client_values(public, pixels)
    return np.asarray(forward(Graph.of(public, plan), values))


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        raise RequestError("no image was asked for", "give --images 20")
    error = max(row["logit_error"] for row in rows)
    differ = [row for row in rows if row["private"] != row["clear"]]
    return {
        "images": len(rows),
        "accuracy": sum(row["private"] == row["label"] for row in rows) / len(rows),
        "clear_accuracy": sum(row["clear"] == row["label"] for row in rows) / len(rows),
        "agreement": 1 - len(differ) / len(rows),
        "max_logit_error": error,
        # A disagreement is the engine's rounding and nothing else if the two best classes were this close.
        "disagreements": [
            {"image": r["image"], "margin": r["margin"], "explained": r["margin"] < 2 * error} for r in differ
        ],
        "sent_bytes": int(np.median([row["sent_bytes"] for row in rows])),
        "rounds": int(np.median([row["rounds"] for row in rows])),
        "seconds": float(np.median([row["seconds"] for row in rows])),
        "setup_bytes": rows[0]["setup_bytes"],
        "setup_rounds": rows[0]["setup_rounds"],
    }


def _identity(artifact: Artifact, data: str, protocol: str) -> str:
    digest = hashlib.sha256(public_hash(artifact.public, artifact.plan).encode())
    for name, value in sorted((artifact.weights or {}).items()):
        digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
    digest.update(f"{data}\n{protocol}".encode())
    return digest.hexdigest()[:32]


def _read_record(record: Path) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    if record.is_file():
        for line in record.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # empty, or cut short by an interruption
            rows[int(row["image"])] = row
    return rows
