"""From a trained student to the artifact that server and client run."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privit.artifact import Artifact, Preprocessing, Public, listed_files, load_artifact, save_artifact
from privit.errors import ArtifactError, RequestError, WorkError
from privit.plan import Plan, all_weight_shapes
from privit.program.ranges import unwatched
from privit.spec import Spec
from privit.train.fixed_point.ranges import check_ranges, measure_ranges
from privit.train.fixed_point.stream import fitting_scale, scaled_stream
from privit.train.student.vit import Student

CHECKED_IMAGES = 8
"""On how many images the student read back must give the very same logits."""
SHOWN_FILES = 3


def export_artifact(
    student: Student,
    plan: Plan,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    validation_images: np.ndarray | Tensor,
    folder: Path,
    notes: Mapping[str, Any] | None = None,
) -> Artifact:
    """The artifact in `folder`, with server/ and client/, as read back from disk.

    Measures the ranges on `validation_images` (n, C, S, S) and refuses a model whose values the engine
    cannot hold, before anything is written; a residual stream that is too large is scaled down first, which
    changes no logit. An artifact that was in `folder` is replaced as a whole.
    """
    _check_request(student.spec, preprocessing, class_names, validation_images)
    _refuse_foreign_folder(folder)
    student = with_plan(student, plan)
    ranges = measure_ranges(student, validation_images)
    notes, scale = dict(notes or {}), fitting_scale(ranges, student.spec)
    if scale != 1:
        student = scaled_stream(student, scale)
        ranges = measure_ranges(student, validation_images)
        notes["stream_scale"] = scale
    check_ranges(ranges, student.spec)
    # The guard that narrow margins rely on is yet to come (`serve/measure/exported.py`).
    public = Public(student.spec, preprocessing, tuple(class_names), unwatched(ranges), notes)
    weights = {name: student.weights()[name] for name in all_weight_shapes(student.spec, plan)}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as staging:
            written = Path(staging) / "artifact"
            save_artifact(written, public, plan, weights)
            _check_logits(student, written, validation_images)
            # Measuring may have taken minutes.
            _refuse_foreign_folder(folder)
            shutil.rmtree(folder, ignore_errors=True)
            written.rename(folder)
    except OSError as error:
        raise WorkError(
            f"the artifact could not be written to {folder}: {error.strerror or error}",
            "free some space or choose a folder that you may write to",
        ) from error
    return load_artifact(folder)


def with_plan(student: Student, plan: Plan) -> Student:
    """The student frozen to `plan`; a copy, unless it already is."""
    kinds_frozen = all(student.frozen(kind) for kind in plan.layers)
    if kinds_frozen and student.plan().hash() == plan.hash():
        return student
    student = copy.deepcopy(student)
    student.set_plan(plan)
    return student


def student_from_artifact(artifact: Artifact) -> Student:
    """The student that an artifact describes; needs the server's part."""
    if artifact.weights is None:
        raise ArtifactError("this is a client's folder, which holds no weights", "give the server's folder")
    student = Student(artifact.spec, artifact.plan.granularity)
    student.set_plan(artifact.plan)
    student.load_weights(artifact.weights)
    return student.eval()


def artifact_logits(artifact: Artifact, pixels: np.ndarray) -> np.ndarray:
    """Logits (B, classes) of the artifact in torch, for preprocessed images (B, C, S, S)."""
    with torch.no_grad():
        return student_from_artifact(artifact)(torch.from_numpy(pixels)).numpy()


def _check_request(
    spec: Spec, preprocessing: Preprocessing, class_names: Sequence[str], images: np.ndarray | Tensor
) -> None:
    expected = (spec.channels, spec.image_size, spec.image_size)
    problems = Public(spec, preprocessing, tuple(class_names)).problems()
    if len(images) == 0 or tuple(images.shape[1:]) != expected:
        problems.append(f"validation images have shape {tuple(images.shape)}, expected (n, *{expected})")
    if problems:
        raise RequestError("; ".join(problems), "export with the data and preprocessing of the run")


def _refuse_foreign_folder(folder: Path) -> None:
    """An artifact or an empty folder may be replaced; anything else is not ours to delete."""
    if not folder.exists():
        return
    foreign = [folder] if not folder.is_dir() else []
    for path in folder.iterdir() if folder.is_dir() else ():
        ours = path.name in ("server", "client") and path.is_dir() and not path.is_symlink()
        listed = listed_files(path) if ours else set()
        foreign += [inner for inner in path.iterdir() if inner.name not in listed] if ours else [path]
    if foreign:
        named = ", ".join(sorted(str(path) for path in foreign)[:SHOWN_FILES])
        raise RequestError(
            f"{folder} exists and holds other things than an artifact: {named}",
            "choose a new folder, or one that an earlier export wrote",
        )


def _check_logits(student: Student, folder: Path, images: np.ndarray | Tensor) -> None:
    """What the files describe must compute what the student computes, to the bit."""
    few = torch.as_tensor(np.asarray(images[:CHECKED_IMAGES]), dtype=torch.float32)
    device = next(student.parameters()).device
    again = student_from_artifact(load_artifact(folder)).to(device)
    training = student.training
    student.eval()
    with torch.no_grad():
        same = torch.equal(student(few.to(device)), again(few.to(device)))
    student.train(training)
    if not same:
        raise ArtifactError("the exported model computes other logits than the student", "report this bug")
