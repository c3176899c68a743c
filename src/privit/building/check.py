"""The artifact, tried: images simulated, one asked on the protocol, and what its teacher costs beside it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Artifact, Public, load_artifact, public_hash, save_artifact, weights_hash
from privit.building.request import Request
from privit.data.datasets import Data, preprocess_split
from privit.errors import ArtifactError
from privit.plan import all_weight_shapes, uniform_plan
from privit.runs import load_run, read_json, write_text
from privit.spec import Spec

SIMULATED, IMAGES = "semi2k-benchmark", 20
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Whole:
    """The untouched teacher as it would be served: what is public of it, and its weights."""

    public: Public
    weights: dict[str, np.ndarray]

    @property
    def spec(self) -> Spec:
        """The model's shape."""
        return self.public.spec


def whole_teacher(teacher: Path, ranges: dict[str, float]) -> Whole:
    """The teacher's run with the ranges of its values."""
    from privit.train.stages import read_model

    model = read_model(load_run(teacher, "teacher"))
    subject = model.subject
    return Whole(
        Public(subject.spec, subject.preprocessing, tuple(subject.class_names), ranges), model.weights
    )


@dataclass(frozen=True)
class Made:
    """What is known of a run's artifact: its fingerprint, what a person should know, what it overspends."""

    artifact: str
    said: dict[str, Any]
    over: float


def known_artifact(run: Path, out: Path, over: Callable[[Artifact], float], tell: Tell) -> Made:
    """What is known of a run's artifact, which is made in out/artifact unless it was made before.

    It is written before it is tried, so that only the note beside it says that it was whole. A later run's
    may lie in its place by now. `over` says how many times its budget a program takes.
    """
    from privit.exporting import export_and_try, in_words

    note, identity = out / "artifact.json", load_run(run).identity
    known = read_json(note) if note.is_file() else {}
    if identity not in known:
        artifact, tried = export_and_try(run, out / "artifact", tell=tell)
        known[identity] = asdict(Made(fingerprint(artifact), in_words(tried), over(artifact)))
        write_text(note, json.dumps(known, indent=2) + "\n")
    return Made(**known[identity])


def make_artifact(run: Path, out: Path, over: Callable[[Artifact], float], tell: Tell) -> Artifact:
    """The artifact of a run in out/artifact; made again where another, or a damaged one, lies there."""
    made = known_artifact(run, out, over, tell)
    try:
        artifact = load_artifact(out / "artifact")
        if fingerprint(artifact) == made.artifact:
            return artifact
    except ArtifactError:
        pass
    note = out / "artifact.json"
    others = {name: entry for name, entry in read_json(note).items() if name != load_run(run).identity}
    write_text(note, json.dumps(others, indent=2) + "\n")
    known_artifact(run, out, over, tell)
    return load_artifact(out / "artifact")


def fingerprint(artifact: Artifact) -> str:
    """sha256 over all that an artifact is."""
    return weights_hash(artifact.weights or {}, public_hash(artifact.public, artifact.plan))


def check(request: Request, artifact: Artifact, whole: Whole, data: Data, tell: Tell) -> dict[str, Any]:
    """What was measured; what is in out/check already is not measured again."""
    folder = request.out / "check"
    folder.mkdir(exist_ok=True)
    own = fingerprint(artifact)[:16]
    asked = f"{request.protocol}-{request.network}".replace(",", "-")
    pixels = preprocess_split(data.test, artifact.public.preprocessing, np.arange(1))[0]
    place = request.out / "artifact"
    return {
        "simulated": _once(folder / f"simulated-{own}.json", lambda: _simulated(place, folder, own, tell)),
        "student": _once(
            folder / f"asked-{asked}-{own}.json",
            lambda: _asked(place, artifact, request, data, pixels, tell),
        ),
        "rewritten": _once(
            folder / f"teacher-{asked}.json", lambda: _rewritten(whole, request, pixels, tell)
        ),
        "written": _once(
            folder / f"teacher-as-written-{request.protocol}.json",
            lambda: _written(whole, request, pixels, tell),
        ),
    }


def _once(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    if not path.is_file():
        write_text(path, json.dumps(measure(), indent=2) + "\n")
    return read_json(path)


def _simulated(place: Path, folder: Path, own: str, tell: Tell) -> dict[str, Any]:
    from privit.serve.measure.evaluate import evaluate

    tell(f"check: {IMAGES} test images simulated on {SIMULATED}")
    record = folder / f"simulated-{own}.jsonl"
    return evaluate(place, on="simulated", protocol=SIMULATED, images=IMAGES, record=record)


def _asked(
    place: Path, artifact: Artifact, request: Request, data: Data, pixels: np.ndarray, tell: Tell
) -> dict[str, Any]:
    from privit.program.ranges import opened
    from privit.serve.measure.private import clear_logits

    tell(f"check: one test image on {request.protocol} between processes, over {request.network}")
    found = _query(place, request, pixels)
    logits, inside = opened(artifact.public, np.asarray(found.pop("logits")))
    clear = clear_logits(artifact, pixels)
    names = artifact.public.class_names
    return found | {
        "class_name": names[int(np.argmax(logits))],
        "in_the_clear": names[int(np.argmax(clear))],
        "really": data.class_names[int(data.test.labels[0])],
        "inside": inside,
    }


def _rewritten(whole: Whole, request: Request, pixels: np.ndarray, tell: Tell) -> dict[str, Any]:
    tell(f"check: the teacher, rewritten, on {request.protocol} over {request.network}")
    plan = uniform_plan(whole.spec)
    weights = {name: whole.weights[name] for name in all_weight_shapes(whole.spec, plan)}
    with tempfile.TemporaryDirectory(prefix="privit-build-") as folder:
        save_artifact(Path(folder), whole.public, plan, weights)
        found = _query(Path(folder), request, pixels)
    return {name: value for name, value in found.items() if name != "logits"}


def _written(whole: Whole, request: Request, pixels: np.ndarray, tell: Tell) -> dict[str, Any]:
    from privit.serve.engine.protocols import protocol
    from privit.serve.measure.bench import measure_written

    tell(f"check: the teacher as commonly written, simulated on {request.protocol}")
    plan, asked = uniform_plan(whole.spec), protocol(request.protocol)
    found = measure_written(whole.public, plan, whole.weights, pixels, asked, "dense").total
    return {"sent_bytes": found.sent_bytes, "rounds": found.rounds, "measured_on": "simulated"}


def _query(place: Path, request: Request, pixels: np.ndarray) -> dict[str, Any]:
    """One query between an engine process for each party, over the network that was asked for."""
    from privit.serve.measure.sessions import measure_queries

    (found,) = measure_queries(place, request.protocol, [(request.network, 1)], pixels)
    names = ("sent_bytes", "rounds", "seconds", "measured_on", "logits")
    return {name: found[name] for name in names}
