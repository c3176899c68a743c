"""What a finished model says when it is asked: its measured cost, agreement under MPC, private queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Artifact, load_artifact
from privit.errors import RequestError
from privit.runs import read_json

BENCH_FIGURES = (
    "sent_bytes",
    "rounds",
    "seconds",
    "setup_bytes",
    "setup_rounds",
    "max_logit_error",
    "measured_on",
    "private",
)
RECORD = "images.jsonl"
"""The finished images of a stage, from which an interrupted one goes on."""


def measured(stages: Path, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes, rounds and seconds of one prediction; of a model whose export was refused, its program's."""
    from privit.serve.measure.bench import bench

    result = read_json(stages / wanted["result"] / "result.json")
    artifact = _program(stages, result)
    graph, over = result["cost"].get("graph", "all"), wanted.get("network")
    against = list(dict.fromkeys([*wanted.get("against", ()), *([] if graph == "all" else [graph])]))
    found = bench(artifact, wanted["protocol"], against, over)
    beside = found.get("against", {})
    found |= beside.get(graph, {})
    figures = {"protocol": wanted["protocol"]} | ({"network": over} if over else {})
    figures |= _figures(found)
    if "against" in wanted:
        figures["against"] = {other: _figures(beside[other]) for other in wanted["against"]}
    return figures


def agreement(stages: Path, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """How often a simulated model says what it says in the clear; a refused one says why it cannot."""
    from privit.serve.measure.evaluate import evaluate

    folder, asked = _asked(stages, wanted)
    if folder is None:
        return asked
    found = evaluate(
        folder,
        "simulated",
        wanted["protocol"],
        images=wanted["images"],
        record=stages / name / RECORD,
    )
    return asked | found | {"folded": _folded(folder, found["images"])}


def private(stages: Path, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Queries between real processes on a private protocol; a refused model says why it cannot answer."""
    from privit.serve.measure.private import evaluate_private

    folder, asked = _asked(stages, wanted)
    if folder is None:
        return asked
    record = stages / name / RECORD
    return asked | evaluate_private(
        folder, images=wanted["images"], protocol=wanted["protocol"], record=record
    )


ANSWERS: dict[str, Callable[[Path, str, Mapping[str, Any]], dict[str, Any]]] = {
    "bench": measured,
    "agreement": agreement,
    "private": private,
}


def _asked(stages: Path, wanted: Mapping[str, Any]) -> tuple[Path | None, dict[str, Any]]:
    """The artifact to ask, or None with the reason for which its export was refused."""
    result = read_json(stages / wanted["result"] / "result.json")
    if result["artifact"] is None:
        return None, {"protocol": wanted["protocol"], "refused": result["artifact_problem"]}
    return stages.parent / result["artifact"], {"protocol": wanted["protocol"]}


def _program(stages: Path, result: Mapping[str, Any]) -> Artifact:
    """The exported model, or the program of one that was refused: with any weights it sends the same."""
    from privit.serve.measure.bench import random_weights

    if result["artifact"] is not None:
        return load_artifact(stages.parent / result["artifact"])
    if not result.get("program"):
        raise RequestError(
            f"there is no artifact to measure: {result['artifact_problem']}", "run it again in a new folder"
        )
    program = load_artifact(stages.parent / result["program"])
    return Artifact(program.public, program.plan, random_weights(program.public, program.plan, seed=0))


def _folded(folder: Path, images: int) -> dict[str, Any]:
    """How far folding stand-ins into weights moves the logits: the exported program against torch."""
    from privit.data.datasets import load_data, preprocess_split
    from privit.serve.measure.evaluate import plain_logits
    from privit.train.export import artifact_logits

    artifact = load_artifact(folder)
    test = load_data(str(artifact.public.notes["data"])).test
    pixels = preprocess_split(test, artifact.public.preprocessing, np.arange(images))
    expected, found = artifact_logits(artifact, pixels), plain_logits(artifact, test, images)
    agree = int((found.argmax(1) == expected.argmax(1)).sum())
    return {"agree": agree, "max_logit_difference": float(np.abs(found - expected).max())}


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in BENCH_FIGURES if name in found}
