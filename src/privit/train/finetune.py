"""The fine-tune stage: the plan stands, the weights are trained on; and the export of what came out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privit.artifact import Artifact, Public, save_program
from privit.config import FinetuneConfig, check_config
from privit.data.datasets import preprocess_split
from privit.errors import RequestError
from privit.plan import Plan, check_plan, swap_operator
from privit.program.ranges import unwatched
from privit.runs import Run, load_run
from privit.train.export import export_artifact
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.loop.batches import Batch
from privit.train.loop.hidden import hidden_error, hidden_states
from privit.train.loop.loop import Loop, Stage, Teacher, make_accelerator
from privit.train.loop.losses import classification, distillation
from privit.train.search import cut_folder
from privit.train.stages import (
    Model,
    accuracy_on_test,
    close_run,
    describe_plan,
    make_feed,
    model_hash,
    planned_student,
    read_model,
    start_run,
    teacher_of,
    write_model,
)
from privit.train.student.vit import Student

EXPORT_IMAGES = 1000
"""Validation images on which an export measures fixed-point ranges."""


class FinetuneStage(Stage):
    """Plain training of a model whose plan is frozen, if asked towards the teacher's tokens as well."""

    name = "finetune"

    def __init__(self, student: Student, config: FinetuneConfig):
        super().__init__(student, config, config.select)
        self.hidden = config.hidden
        if self.hidden:
            self.loss_names = (*Stage.loss_names, "hidden_states")

    def losses(self, model: Any, batch: Batch, teacher: Teacher | None) -> Tensor:
        """The plain stage's, and how far the student's tokens are from the teacher's."""
        if not self.hidden or teacher is None:
            return super().losses(model, batch, teacher)
        logits, ours = hidden_states(model, batch.images)
        with torch.no_grad():
            wanted, theirs = hidden_states(teacher.model, batch.images)
        entropy = classification(logits.float(), batch.labels)
        divergence = distillation(logits.float(), wanted.float(), teacher.temperature)
        error = hidden_error(self.student, ours, theirs)
        return torch.stack([entropy + divergence + self.hidden * error, entropy, divergence, error])


def finetune(
    search_run: Path,
    run: Path,
    config: FinetuneConfig | None = None,
    budget: str | None = None,
    plan: Plan | None = None,
) -> dict[str, Any]:
    """The result of training on with the plan frozen; a finished run is returned, an interrupted one goes on.

    `budget` names one of the search's cuts (by default the last). `search_run` may also be a run of
    `baselines.match`, and with `plan` a teacher's: its weights are trained on under that plan.
    """
    config = config or FinetuneConfig()
    check_config(config)
    stages = ("search", "matching", "teacher")
    source = load_run(search_run, *(stages if plan is not None else stages[:2]))
    start, teacher, teacher_folder = _start(source, budget, plan)
    for old, new in config.swap.items():
        start = Model(start.subject, swap_operator(start.plan, old, new), start.weights)
    inputs = {"start": model_hash(start), "teacher": model_hash(teacher), "budget": budget}
    notes = {"search": os.path.relpath(source.folder, run), "teacher": os.path.relpath(teacher_folder, run)}
    notes |= {"data": start.subject.data["name"]}
    accelerator = make_accelerator(config)
    opened = start_run(run, "finetune", config, inputs, accelerator, notes)
    if (finished := opened.result()) is not None:
        return finished
    stage = FinetuneStage(start.student(), config)
    data = start.subject.load()
    loop = Loop(
        stage, make_feed(data, start.subject, config, teacher_of(teacher, config)), opened, accelerator
    )
    loop.go()
    best = planned_student(start.subject.spec, start.plan, stage.best_weights)
    result = {
        "accuracy": accuracy_on_test(loop, best, start.subject, data),
        "validation_accuracy": stage.best_accuracy,
    } | describe_plan(start.plan)
    if accelerator.is_main_process:
        write_model(opened.folder, start.subject, start.plan, stage.best_weights)
    return close_run(opened, result, accelerator)


def export(run: Path, out: Path, budget: str | None = None) -> Artifact:
    """The artifact of a finished run, written to `out`, ranges measured and round trip checked."""
    opened = load_run(run)
    model = _cut_of(opened, budget) if opened.stage == "search" else read_model(opened)
    result = opened.result() or {}
    notes = {
        "run": opened.identity,
        "stage": opened.stage,
        "data": model.subject.data["name"],
        "accuracy": result.get("accuracy"),
        "validation_accuracy": result.get("validation_accuracy"),
    }
    return export_artifact(
        model.student(),
        model.plan,
        model.subject.preprocessing,
        model.subject.class_names,
        _range_images(model),
        Path(out),
        notes,
    )


def export_program(run: Path, out: Path, budget: str | None = None) -> Artifact:
    """What a finished run would run on the engine, written to `out` without its weights.

    For a model that `export` refuses because its values are too large: it can be costed, and never served.
    """
    opened = load_run(run)
    model = _cut_of(opened, budget) if opened.stage == "search" else read_model(opened)
    subject = model.subject
    ranges = unwatched(measure_ranges(model.student(), _range_images(model)))
    notes = {"run": opened.identity, "data": subject.data["name"]}
    public = Public(subject.spec, subject.preprocessing, tuple(subject.class_names), ranges, notes)
    return save_program(Path(out), public, model.plan)


def range_images(run: Path, budget: str | None = None) -> np.ndarray:
    """The preprocessed images (n, C, S, S) that the export of a run measures ranges on."""
    opened = load_run(run)
    return _range_images(_cut_of(opened, budget) if opened.stage == "search" else read_model(opened))


def _range_images(model: Model) -> np.ndarray:
    """Images to measure ranges on: they bound what may be served, so a small validation set is too few."""
    data = model.subject.load()
    return np.concatenate(
        [
            preprocess_split(split, model.subject.preprocessing, np.arange(min(len(split), EXPORT_IMAGES)))
            for split in (data.validation, data.train)
        ]
    )


def _start(source: Run, budget: str | None, plan: Plan | None) -> tuple[Model, Model, Path]:
    """Where fine-tuning starts, whom it learns from, and that teacher's folder."""
    if source.stage == "teacher":
        teacher, folder = read_model(source), source.folder
        start = teacher
    else:
        folder = Path(os.path.normpath(source.folder / source.description["notes"]["teacher"]))
        teacher, start = read_model(load_run(folder, "teacher")), _cut_of(source, budget)
    if plan is not None:
        check_plan(start.subject.spec, plan)
        start = Model(start.subject, plan, start.weights)
    return start, teacher, folder


def _cut_of(run: Run, budget: str | None) -> Model:
    if budget is None:
        return read_model(run)
    known = sorted(path.name for path in (run.folder / "budgets").iterdir())
    if budget not in known:
        raise RequestError(f"{run.folder} has no budget {budget!r}", f"it has {', '.join(known)}")
    return read_model(run, cut_folder(run, budget))
