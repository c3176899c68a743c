"""A model under real private inference on this machine: how often it is right, and what a session costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Artifact, load_artifact
from privit.data.datasets import Split, load_data
from privit.data.images import preprocess
from privit.program.graph import Graph
from privit.serve.compile.compile import client_values, server_values
from privit.serve.engine.protocols import require_private
from privit.serve.measure.record import (
    Progress,
    Row,
    compared,
    data_of,
    finish,
    read_record,
    record_path,
    summary,
)
from privit.serve.model.forward import forward
from privit.serve.parties.client import Client, connect
from privit.serve.parties.processes import local_parties
from privit.serve.wire.addresses import part_of


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
    name = data_of(artifact, data)
    test = load_data(name).test
    count = min(images, len(test))
    record = record or record_path(artifact, "processes", name, protocol)
    rows = read_record(record)
    if any(i not in rows for i in range(count)):
        state = record.with_suffix(".state")
        with (
            local_parties(artifact_folder, state, protocol) as (server, helper),
            connect(Path(artifact_folder), server.address, protocol, helper=helper) as client,
        ):
            finish(record, rows, count, lambda i: _evaluate_one(client, artifact, test, i), progress)
    facts = {"data": name, "protocol": protocol, "private": found.private, "measured_on": "processes"}
    return summary([rows[i] for i in range(count)]) | facts


def _evaluate_one(client: Client, artifact: Artifact, test: Split, i: int) -> Row:
    image = test.image(i)
    answer = client.predict(image)
    clear = clear_logits(artifact, preprocess(image, artifact.public.preprocessing))
    return compared(i, test.labels[i], np.asarray(answer.logits), answer.inside, clear) | {
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
