"""How often an artifact is right, in the clear or simulated, and how far the engine rounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from privit.artifact import Artifact, load_artifact, public_hash
from privit.data import Split, load_data
from privit.errors import RequestError
from privit.images import preprocess
from privit.serve import protocols
from privit.serve.addresses import state_folder
from privit.serve.compile import PATCHES, Program, client_values, compile_program, server_values
from privit.serve.forward import forward
from privit.serve.graph import Graph
from privit.serve.runtime import Simulator

Progress = Callable[[int, int], None]
Row = dict[str, Any]
PLAIN_BATCH = 64
SIMULATED_IMAGES = 20


def evaluate(
    artifact_folder: Path,
    on: Literal["plain", "simulated"] = "plain",
    protocol: str = protocols.DEFAULT,
    data: str | None = None,
    images: int | None = None,
    progress: Progress | None = None,
    record: Path | None = None,
) -> dict[str, Any]:
    """Accuracy on test images; simulated also agreement with plaintext, and the largest error of a logit.

    Args:
        artifact_folder: the artifact, with its weights.
        on: plain is forward.py in the clear; simulated runs every party in this process.
        protocol: of the simulation.
        data: a data set; the one that the model was trained on unless given.
        images: how many test images, from the first on; plain takes all of them unless told.
        progress: called with images done and images asked for.
        record: file of simulated images, from which the same call goes on; in the user's state directory
            unless given.
    """
    found = protocols.protocol(protocol)
    artifact = load_artifact(Path(artifact_folder))
    if artifact.weights is None:
        raise RequestError(
            f"{artifact_folder} holds no weights", "evaluate the whole artifact or its server/"
        )
    name = data or str(artifact.public.notes.get("data", ""))
    if not name:
        raise RequestError("the artifact does not say what it was trained on", "give --data")
    test = load_data(name).test
    if images is not None and images < 1:
        raise RequestError(f"{images} images were asked for", "give --images 20")
    count = min(images or (len(test) if on == "plain" else SIMULATED_IMAGES), len(test))
    logits = plain_logits(artifact, test, count, progress if on == "plain" else None)
    labels = np.asarray(test.labels[:count])
    facts = {"data": name, "images": count, "clear_accuracy": float(np.mean(logits.argmax(1) == labels))}
    if on == "plain":
        return facts | {"accuracy": facts["clear_accuracy"], "measured_on": "plain"}
    program = compile_program(artifact.public, artifact.plan, found)
    if record is None:
        identity = _identity(artifact, program, f"simulated {name} {protocol}")
        record = state_folder() / "evaluations" / f"{identity}.jsonl"
    rows = _simulate(artifact, program, found, test, count, record, progress)
    return (
        facts
        | _summary(rows, logits, labels)
        | {
            "protocol": found.name,
            "private": found.private,
            "measured_on": "simulated",
        }
    )


def plain_logits(artifact: Artifact, test: Split, count: int, progress: Progress | None = None) -> np.ndarray:
    """Logits (images, classes) of forward.py in the clear, on the first `count` images."""
    assert artifact.weights is not None
    public, graph = artifact.public, Graph.of(artifact.public, artifact.plan)
    values = server_values(public, artifact.plan, artifact.weights)
    run = jax.jit(jax.vmap(lambda patches, given: forward(graph, given | {PATCHES: patches}), (0, None)))
    parts = []
    for start in range(0, count, PLAIN_BATCH):
        stop = min(start + PLAIN_BATCH, count)
        patches = np.stack([_patches(artifact, test, i) for i in range(start, stop)])
        # Every batch has the same shape, so that it is compiled once.
        filled = np.resize(patches, (min(PLAIN_BATCH, count), *patches.shape[1:]))
        parts.append(np.asarray(run(filled, values))[: stop - start])
        if progress is not None:
            progress(stop, count)
    return np.concatenate(parts)


def _patches(artifact: Artifact, test: Split, i: int) -> np.ndarray:
    pixels = preprocess(test.image(i), artifact.public.preprocessing)
    return client_values(artifact.public, pixels)[PATCHES]


def _simulate(
    artifact: Artifact,
    program: Program,
    protocol: protocols.Protocol,
    test: Split,
    count: int,
    record: Path,
    progress: Progress | None,
) -> list[Row]:
    """One row for each image; finished ones come from the record."""
    rows = _read_record(record)
    missing = [i for i in range(count) if i not in rows]
    if missing:
        assert artifact.weights is not None
        record.parent.mkdir(parents=True, exist_ok=True)
        with Simulator(protocol) as simulator, record.open("a") as file:
            simulator.give(program.inputs, server_values(artifact.public, artifact.plan, artifact.weights))
            for done, i in enumerate(missing, count - len(missing) + 1):
                simulator.give(program.inputs, {PATCHES: _patches(artifact, test, i)})
                counts = simulator.run(program.executable)
                rows[i] = {
                    "image": i,
                    "logits": [float(value) for value in simulator.open(program.output)],
                    "sent_bytes": counts.sent_bytes,
                    "rounds": counts.rounds,
                    "seconds": counts.seconds,
                    "setup_bytes": simulator.setup.sent_bytes,
                    "setup_rounds": simulator.setup.rounds,
                }
                file.write(json.dumps(rows[i]) + "\n")
                file.flush()
                if progress is not None:
                    progress(done, count)
    return [rows[i] for i in range(count)]


def _summary(rows: list[Row], clear: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    found = np.array([row["logits"] for row in rows])
    error = float(np.abs(found - clear).max())
    margins = np.diff(np.sort(clear, axis=1)[:, -2:], axis=1)[:, 0]
    differ = np.flatnonzero(found.argmax(1) != clear.argmax(1))
    return {
        "accuracy": float(np.mean(found.argmax(1) == labels)),
        "agreement": 1 - differ.size / len(rows),
        "max_logit_error": error,
        # A disagreement is the engine's rounding and nothing else if the two best classes were this close.
        "disagreements": [
            {"image": int(i), "margin": float(margins[i]), "explained": bool(margins[i] < 2 * error)}
            for i in differ
        ],
        "sent_bytes": int(np.median([row["sent_bytes"] for row in rows])),
        "rounds": int(np.median([row["rounds"] for row in rows])),
        "seconds": float(np.median([row["seconds"] for row in rows])),
        "setup_bytes": int(rows[0]["setup_bytes"]),
        "setup_rounds": int(rows[0]["setup_rounds"]),
    }


def _identity(artifact: Artifact, program: Program, asked: str) -> str:
    digest = hashlib.sha256(public_hash(artifact.public, artifact.plan).encode())
    for name, value in sorted((artifact.weights or {}).items()):
        digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
    digest.update(f"{program.code_hash}\n{asked}".encode())
    return digest.hexdigest()[:32]


def _read_record(record: Path) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    if record.is_file():
        for line in record.read_text().splitlines():
            try:
                row = json.loads(line)
                rows[int(row["image"])] = row
            except (ValueError, KeyError, TypeError):
                # A line cut short by an interruption is measured again.
                continue
    return rows
