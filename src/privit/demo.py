"""The whole way on bundled data: teacher, PriViT as published, the best known way, private answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from privit.building import build as build_best
from privit.building.request import Request
from privit.cli.output import megabytes, note, percent, show_rows
from privit.cost.budgets.budget import keep
from privit.cost.estimate import estimate
from privit.data.datasets import load_data
from privit.errors import MissingExtra, WorkError
from privit.plan import Plan
from privit.presets import DIGITS_MODEL, preset
from privit.report import write_report
from privit.spec import Spec

KEPT_SHARE = 0.1
"""Of the GELU tokens and of the softmax rows, as in the "must hold" figure of the digits benchmark."""
PROTOCOL, NETWORK = "cheetah", "lan"
SHARE_OF_SECONDS = 1 / 4
"""What the best known way is asked for, of the seconds that the teacher takes as commonly written."""
FIGURES = ("sent_bytes", "rounds", "seconds")
IMAGES = 3
START_SECONDS = 300
QUERY_SECONDS = 600


def run_demo(out: Path, seed: int = 0) -> dict[str, Any]:
    """What the demo measured; runs, artifact, images and demo.json are left in `out`."""
    started = time.monotonic()
    stages = build(out, seed)
    stages["seconds_to_export"] = round(time.monotonic() - started, 1)
    note("4/5 private prediction between two processes on this machine")
    stages["private"] = predict_privately(out)
    stages["private"]["in_the_clear"] = predict_in_the_clear(out)
    note("5/5 report")
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
    """Teacher, both students and the artifact in `out`; what is there already is not made again."""
    from dataclasses import replace

    from privit.train.stages import compute_with
    from privit.train.teacher import train_teacher

    compute_with(1)
    settings = preset("digits")
    note("1/5 teacher: a small ViT on scikit-learn's digits")
    teacher = train_teacher(DIGITS_MODEL, "digits", out / "teacher", replace(settings.teacher, seed=seed))
    published = make_published(out, seed)
    # What the teacher takes as commonly written depends on its shape alone.
    most = SHARE_OF_SECONDS * _teacher_cost(out)["seconds"]
    note(f"3/5 the best known way: asked for {most:.2f} s, a quarter of what the teacher takes")
    asked = Request(
        DIGITS_MODEL,
        "digits",
        out,
        {"seconds": most},
        protocol=PROTOCOL,
        network=NETWORK,
        teacher=out / "teacher",
        seed=seed,
        check=False,
    )
    found = build_best(asked, note)
    whole, rewritten, student = found["models"]
    rows = [whole, rewritten, published, student | {"model": "student, the best known way"}]
    return {
        "teacher_accuracy": teacher["accuracy"],
        "accuracy": student["accuracy"],
        "models": [
            {"model": row["model"], "accuracy": row["accuracy"], "predicted": row["predicted"]}
            for row in rows
        ],
        "artifact": found["artifact"],
        "over_budget": found["over_budget"],
    }


def make_published(out: Path, seed: int) -> dict[str, Any]:
    """PriViT as published, in out/privit: its accuracy, and what its program is predicted to cost."""
    from dataclasses import replace

    from privit.train.finetune import export_program, finetune
    from privit.train.search import search

    settings, folder = preset("digits"), out / "privit"
    note(f"2/5 PriViT as published: which {KEPT_SHARE:.0%} of the GELUs and softmaxes does it need?")
    descent = replace(settings.search, seed=seed, budgets=(keep(KEPT_SHARE),))
    search(out / "teacher", folder / "search", descent)
    tuned = finetune(folder / "search", folder / "finetune", replace(settings.finetune, seed=seed))
    program = export_program(folder / "finetune", folder / "program")
    predicted = _predicted(program.spec, program.plan, ranges=program.public.ranges)
    name = f"PriViT as published, {KEPT_SHARE:.0%} kept"
    return {"model": name, "accuracy": tuned["accuracy"], "predicted": predicted}


def _teacher_cost(out: Path) -> dict[str, float]:
    from privit.runs import load_run
    from privit.train.stages import read_model

    model = read_model(load_run(out / "teacher", "teacher"))
    return _predicted(model.subject.spec, model.plan, rewrites="dense")


def _predicted(spec: Spec, plan: Plan, **options: Any) -> dict[str, float]:
    found = estimate(spec, plan, "spu", protocol=PROTOCOL, network=NETWORK, **options)
    return {name: found[name] for name in FIGURES}


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
    rows = [
        (
            model["model"],
            percent(model["accuracy"]),
            megabytes(model["predicted"]["sent_bytes"]),
            model["predicted"]["rounds"],
            f"{model['predicted']['seconds']:.1f}",
        )
        for model in result["models"]
    ]
    title = f"digits: one prediction on {PROTOCOL} over a {NETWORK.upper()}, predicted"
    show_rows(title, ("model", "accuracy", "sent", "rounds", "seconds"), rows)
    note(gained(result["models"]))
    private = result["private"]
    columns = zip(private["predictions"], private["labels"], private["in_the_clear"], strict=True)
    answers = [
        (Path(p["image"]).name, label, clear, p["class_name"], megabytes(p["sent_bytes"]), p["seconds"])
        for p, label, clear in columns
    ]
    show_rows("predictions", ("image", "really", "in the clear", "privately", "sent", "seconds"), answers)
    if private["private"]:
        note(f"{private['protocol']}: the server never saw the images, the client never saw the weights")
    if result["report"]:
        note(f"pictures and tables: open {result['report']} in a browser")


def gained(models: list[dict[str, Any]]) -> str:
    """How many times less the last of the models costs than the first, and than the one before it."""
    first, published, best = models[0]["predicted"], models[-2]["predicted"], models[-1]["predicted"]
    times = [
        f"{other['sent_bytes'] / best['sent_bytes']:.1f} times fewer bytes and "
        f"{other['rounds'] / best['rounds']:.1f} times fewer rounds than {name}"
        for other, name in ((first, "the teacher as commonly written"), (published, "PriViT as published"))
    ]
    return "the best known way: " + ", ".join(times)


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
