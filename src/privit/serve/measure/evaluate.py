"""How often an artifact is right, in the clear or simulated, and how far the engine rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from privit.artifact import Artifact, load_artifact
from privit.data.datasets import Split, load_data
from privit.data.images import preprocess
from privit.errors import RequestError
from privit.program.choices import batch_for
from privit.program.graph import Graph
from privit.program.ranges import opened
from privit.serve.compile.compile import PATCHES, Program, client_values, compile_program, server_values
from privit.serve.engine import protocols
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.record import (
    Progress,
    Row,
    compared,
    data_of,
    finish,
    flagged,
    read_record,
    record_path,
    summary,
)
from privit.serve.model.guard import answer

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
    name = data_of(artifact, data)
    test = load_data(name).test
    if images is not None and images < 1:
        raise RequestError(f"{images} images were asked for", "give --images 20")
    count = min(images or (len(test) if on == "plain" else SIMULATED_IMAGES), len(test))
    answers = plain_answers(artifact, test, count, progress if on == "plain" else None)
    logits = answers[:, : artifact.spec.classes]
    if on == "plain":
        accuracy = float(np.mean(logits.argmax(1) == np.asarray(test.labels[:count])))
        figures: dict[str, Any] = {"images": count, "accuracy": accuracy, "clear_accuracy": accuracy}
        figures["flagged"] = flagged([opened(artifact.public, answer)[1] for answer in answers])
        return {"data": name} | figures | {"measured_on": "plain"}
    program = compile_program(artifact.public, artifact.plan, batch=batch_for(found.name, 1))
    record = record or record_path(artifact, "simulated", name, protocol, program.code_hash)
    rows = _simulate(artifact, program, found, test, logits, record, progress)
    facts = {"data": name, "protocol": found.name, "private": found.private, "measured_on": "simulated"}
    return summary(rows) | facts


def plain_logits(artifact: Artifact, test: Split, count: int, progress: Progress | None = None) -> np.ndarray:
    """Logits (images, classes) of forward.py in the clear, on the first `count` images."""
    return plain_answers(artifact, test, count, progress)[:, : artifact.spec.classes]


def plain_answers(
    artifact: Artifact, test: Split, count: int, progress: Progress | None = None
) -> np.ndarray:
    """What a client would open (images, classes and, with a guard, its bit), computed in the clear."""
    assert artifact.weights is not None
    public, graph = artifact.public, Graph.of(artifact.public, artifact.plan)
    values = server_values(public, artifact.plan, artifact.weights)
    run = jax.jit(jax.vmap(lambda patches, given: answer(graph, given | {PATCHES: patches}), (0, None)))
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
    clear: np.ndarray,
    record: Path,
    progress: Progress | None,
) -> list[Row]:
    """One row for each image of `clear`; finished ones come from the record."""
    rows, count = read_record(record), len(clear)
    if any(i not in rows for i in range(count)):
        assert artifact.weights is not None
        with Simulator(protocol) as simulator:
            simulator.give(program.inputs, server_values(artifact.public, artifact.plan, artifact.weights))

            def evaluate_one(i: int) -> Row:
                simulator.give(program.inputs, {PATCHES: _patches(artifact, test, i)})
                counts = simulator.run(program.executable)
                logits, inside = opened(artifact.public, simulator.open(program.output))
                return compared(i, test.labels[i], logits, inside, clear[i]) | {
                    "sent_bytes": counts.sent_bytes,
                    "rounds": counts.rounds,
                    "seconds": counts.seconds,
                    "setup_bytes": simulator.setup.sent_bytes,
                    "setup_rounds": simulator.setup.rounds,
                }

            finish(record, rows, count, evaluate_one, progress)
    return [rows[i] for i in range(count)]
