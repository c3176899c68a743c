"""The record of an evaluation: one line for each finished image, from which the same call goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Artifact, public_hash, weights_hash
from privit.errors import RequestError
from privit.serve.wire.addresses import state_folder

Row = dict[str, Any]
Progress = Callable[[int, int], None]
VERSION = 3
"""Of the lines; a record of another version is under another name."""


def record_path(artifact: Artifact, *asked: str) -> Path:
    """Where the images of this artifact, weights included, are kept for what is asked of it."""
    public = public_hash(artifact.public, artifact.plan)
    found = weights_hash(artifact.weights or {}, public, str(VERSION), *asked)
    return state_folder() / "evaluations" / f"{found[:32]}.jsonl"


def data_of(artifact: Artifact, data: str | None) -> str:
    """The data set to evaluate on: the one given, or the one that the model was trained on."""
    name = data or str(artifact.public.notes.get("data", ""))
    if not name:
        raise RequestError("the artifact does not say what it was trained on", "give --data")
    return name


def read_record(record: Path) -> dict[int, Row]:
    """The finished images, by number; a line cut short by an interruption is not one."""
    rows: dict[int, Row] = {}
    if record.is_file():
        for line in record.read_text().splitlines():
            try:
                row = json.loads(line)
                rows[int(row["image"])] = row
            except (ValueError, KeyError, TypeError):
                continue
    return rows


def finish(
    record: Path,
    rows: dict[int, Row],
    count: int,
    evaluate_one: Callable[[int], Row],
    progress: Progress | None,
) -> None:
    """Adds what is missing of the first `count` images to `rows` and to the record, one by one."""
    missing = [i for i in range(count) if i not in rows]
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        if file.tell():
            file.write("\n")  # an interruption may have cut the last line short
        for done, i in enumerate(missing, count - len(missing) + 1):
            rows[i] = evaluate_one(i)
            file.write(json.dumps(rows[i]) + "\n")
            file.flush()
            if progress is not None:
                progress(done, count)


def compared(image: int, label: int, logits: np.ndarray, inside: bool | None, clear: np.ndarray) -> Row:
    """The engine's answer next to the answer in the clear; costs are added by whoever measured them."""
    second, first = np.sort(clear)[-2:]
    return {
        "image": image,
        "label": int(label),
        "inside": inside,
        "private": int(np.argmax(logits)),
        "clear": int(np.argmax(clear)),
        "logit_error": float(np.abs(np.asarray(logits) - clear).max()),
        "margin": float(first - second),
    }


def flagged(inside: Sequence[bool | None]) -> int | None:
    """How many answers the guard says may be wrong; None where there is no guard."""
    return None if None in inside else sum(not one for one in inside)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Accuracy, agreement with the clear, and what a query cost, over all rows."""
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
        "flagged": flagged([row.get("inside") for row in rows]),
        # A disagreement is the engine's rounding and nothing else if the two best classes were this close.
        "disagreements": [
            {"image": r["image"], "margin": r["margin"], "explained": r["margin"] < 2 * error} for r in differ
        ],
        "sent_bytes": int(np.median([row["sent_bytes"] for row in rows])),
        "rounds": int(np.median([row["rounds"] for row in rows])),
        "seconds": float(np.median([row["seconds"] for row in rows])),
        "setup_bytes": int(rows[0]["setup_bytes"]),
        "setup_rounds": int(rows[0]["setup_rounds"]),
    }
