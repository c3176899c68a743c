"""The whole way on bundled data: teacher, search, fine-tune, export, a private prediction, a report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from privit.cli.output import megabytes, note, percent, show_fields, show_rows
from privit.config import keep
from privit.data.datasets import load_data
from privit.errors import MissingExtra, WorkError
from privit.presets import DIGITS_MODEL, preset
from privit.report import write_report

KEPT_SHARE = 0.1
"""Of the GELU tokens and of the softmax rows, as in the "must hold" figure of the digits benchmark."""
IMAGES = 3
START_SECONDS = 300
QUERY_SECONDS = 600


def run_demo(out: Path, seed: int = 0) -> dict[str, Any]:
    """What the demo measured; runs, artifact, images and demo.json are left in `out`."""
    started = time.monotonic()
    stages = build(out, seed)
    stages["seconds_to_export"] = round(time.monotonic() - started, 1)
    note("5/6 private prediction between two processes on this machine")
    stages["private"] = predict_privately(out)
    stages["private"]["in_the_clear"] = predict_in_the_clear(out)
    note("6/6 report")
    stages["report"] = _report(out, stages)
    stages["seconds"] = round(time.monotonic() - started, 1)
    _write(out, stages)
    return stages


def _report(out: Path, stages: dict[str, Any]) -> str | None:
    """Where the page is; None where matplotlib is missing, which nothing else here needs."""
    # The report reads what was measured from this file.
    _write(out, stages)
    try:
        return str(write_report(out, out / "report")["page"])
    except MissingExtra as missing:
        note(f"no report: {missing.message}; {missing.hint}")
        return None


def _write(out: Path, stages: dict[str, Any]) -> None:
    (out / "demo.json").write_text(json.dumps(stages, indent=2) + "\n")


def build(out: Path, seed: int) -> dict[str, Any]:
    """Teacher, student and artifact in `out`; what is there already is not made again."""
    from dataclasses import replace

    from privit.exporting import export
    from privit.train.finetune import finetune
    from privit.train.search import search
    from privit.train.teacher import train_teacher

    settings = preset("digits")
    note("1/6 teacher: a small ViT on scikit-learn's digits")
    teacher = train_teacher(DIGITS_MODEL, "digits", out / "teacher", replace(settings.teacher, seed=seed))
    note(f"2/6 search: which {KEPT_SHARE:.0%} of the nonlinearities does it need?")
    descent = replace(settings.search, seed=seed, budgets=(keep(KEPT_SHARE),))
    found = search(out / "teacher", out / "search", descent)
    note("3/6 fine-tune with the plan frozen")
    student = finetune(out / "search", out / "finetune", replace(settings.finetune, seed=seed))
    note("4/6 export")
    export(out / "finetune", out / "artifact")
    return {
        "teacher_accuracy": teacher["accuracy"],
        "accuracy": student["accuracy"],
        "kept": found["kept"],
        "kept_gelu": found["kept_gelu"],
        "kept_softmax": found["kept_softmax"],
        "sites": found["sites"],
        "artifact": str(out / "artifact"),
    }


def predict_in_the_clear(out: Path, images: int = IMAGES) -> list[str]:
    """What the torch student answers for the same images, by class name."""
    from privit.artifact import load_artifact
    from privit.data.datasets import preprocess_split
    from privit.train.export import artifact_logits

    artifact = load_artifact(out / "artifact")
    pixels = preprocess_split(load_data("digits").test, artifact.public.preprocessing, np.arange(images))
    best = artifact_logits(artifact, pixels).argmax(axis=1)
    return [artifact.public.class_names[int(i)] for i in best]


def predict_privately(out: Path, images: int = IMAGES) -> dict[str, Any]:
    """Starts `privit serve` and `privit query` as two processes and gives what the client saw."""
    files, labels = _write_images(out / "images", images)
    command = [sys.executable, "-m", "privit"]
    log_file = out / "server.log"
    log = log_file.open("w")
    # Port 0: the system chooses a free one, and the server says which.
    server = subprocess.Popen(
        [*command, "serve", str(out / "artifact" / "server"), "--port", "0"], stdout=log, stderr=log
    )
    try:
        address = _ready_address(server, log_file)
        query = [*command, "query", *map(str, files), "--model", str(out / "artifact" / "client")]
        answer = subprocess.run(
            [*query, "--server", address, "--json"],
            stdout=subprocess.PIPE,
            timeout=QUERY_SECONDS,
            check=False,
        )
        if answer.returncode:
            raise WorkError("the private query failed", f"see {log_file} for the server's side")
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()
    result = json.loads(answer.stdout)
    result["labels"] = labels
    return result


def show_demo(result: dict[str, Any]) -> None:
    """Prints the summary of a demo."""
    kept = {
        kind: f"{result[f'kept_{kind}']} of {total}, per layer {' '.join(map(str, result['kept'][kind]))}"
        for kind, total in result["sites"].items()
    }
    show_fields(
        "digits",
        {
            "teacher": percent(result["teacher_accuracy"]),
            "student": percent(result["accuracy"]),
            "GELU tokens kept": kept["gelu"],
            "softmax rows kept": kept["softmax"],
            "artifact": result["artifact"],
        },
    )
    private = result["private"]
    columns = zip(private["predictions"], private["labels"], private["in_the_clear"], strict=True)
    rows = [
        (Path(p["image"]).name, label, clear, p["class_name"], megabytes(p["sent_bytes"]), p["seconds"])
        for p, label, clear in columns
    ]
    show_rows("predictions", ("image", "really", "in the clear", "privately", "sent", "seconds"), rows)
    if private["private"]:
        note(f"{private['protocol']}: the server never saw the images, the client never saw the weights")
    if result["report"]:
        note(f"pictures and tables: open {result['report']} in a browser")


def _write_images(folder: Path, count: int) -> tuple[list[Path], list[str]]:
    data = load_data("digits")
    folder.mkdir(parents=True, exist_ok=True)
    files, labels = [], []
    for i in range(count):
        path = folder / f"digit-{i}.png"
        data.test.image(i).save(path)
        files.append(path)
        labels.append(data.class_names[int(data.test.labels[i])])
    return files, labels


def _ready_address(server: subprocess.Popen[bytes], log: Path) -> str:
    """HOST:PORT from the line that the server prints once clients can connect."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise WorkError("the server stopped before it was ready", f"see {log}")
        ready = re.search(r"ready on (\S+:\d+)", log.read_text())
        if ready:
            return ready[1]
        time.sleep(0.2)
    raise WorkError(f"the server was not ready after {START_SECONDS} seconds", f"see {log}")
