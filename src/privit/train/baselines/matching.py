"""MPCFormer's first distillation stage: the student's inner values are brought to the teacher's.

MPCFormer (Li et al. 2022) distils as TinyBERT does (Jiao et al. 2020): first the hidden states (the embedding
and what each block puts out) and the attention scores, by mean squared error and without labels; then the
logits. The second stage is `finetune`. Ours: each layer's error is divided by the teacher's mean square, so
that early layers, whose values are small, count as much as late ones; the second stage adds the
cross-entropy with the labels, as for every other method here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privit.config import FinetuneConfig, check_config
from privit.plan import Plan
from privit.runs import load_run
from privit.train.loop.batches import Batch
from privit.train.loop.hidden import is_hidden_state
from privit.train.loop.loop import Loop, Stage, Teacher, make_accelerator
from privit.train.stages import (
    accuracy_on_test,
    close_run,
    describe_plan,
    make_feed,
    model_hash,
    planned_student,
    read_model,
    start_run,
    write_model,
)


class MatchingStage(Stage):
    """Training of a planned student towards the teacher's hidden states and scores."""

    name = "matching"
    loss_names = ("loss", "hidden_states", "scores")

    def losses(self, model: Any, batch: Batch, teacher: Teacher | None) -> Tensor:
        """The sum of both errors, and each of them."""
        assert teacher is not None
        return inner_errors(model, teacher.model, batch.images)


def inner_errors(student: Any, teacher: Any, images: Tensor) -> Tensor:
    """Mean over layers of the relative squared error: both together, of the hidden states, of the scores."""
    ours: dict[str, Tensor] = {}
    theirs: dict[str, Tensor] = {}
    student(images, observe=ours.__setitem__)
    with torch.no_grad():
        teacher(images, observe=theirs.__setitem__)
    parts = []
    for wanted in (is_hidden_state, _is_score):
        errors = [_relative_error(ours[name], theirs[name]) for name in theirs if wanted(name)]
        parts.append(torch.stack(errors).mean())
    return torch.stack([parts[0] + parts[1], *parts])


def match(teacher_run: Path, run: Path, plan: Plan, config: FinetuneConfig | None = None) -> dict[str, Any]:
    """The result of matching under `plan` from the teacher's weights; `finetune` goes on from the run.

    A finished run is read, an interrupted one goes on. Labels are not used.
    """
    config = config or FinetuneConfig()
    check_config(config)
    source = load_run(teacher_run, "teacher")
    teacher = read_model(source)
    subject = teacher.subject
    accelerator = make_accelerator(config)
    inputs = {"teacher": model_hash(teacher), "plan": plan.hash()}
    notes = {"teacher": os.path.relpath(source.folder, run), "data": subject.data["name"]}
    opened = start_run(run, "matching", config, inputs, accelerator, notes)
    if (finished := opened.result()) is not None:
        return finished
    stage = MatchingStage(planned_student(subject.spec, plan, teacher.weights), config)
    data = subject.load()
    model = teacher.student().eval().requires_grad_(False)
    feed = make_feed(data, subject, config, Teacher(model, config.temperature))
    loop = Loop(stage, feed, opened, accelerator)
    loop.go()
    records = opened.metrics()
    last = planned_student(subject.spec, plan, stage.best_weights)
    result = {
        "accuracy": accuracy_on_test(loop, last, subject, data),
        "validation_accuracy": stage.best_accuracy,
        "first_loss": records[0]["loss"],
        "last_loss": records[-1]["loss"],
    } | describe_plan(plan)
    if accelerator.is_main_process:
        write_model(opened.folder, subject, plan, stage.best_weights)
    return close_run(opened, result, accelerator)


def _is_score(name: str) -> bool:
    return name.endswith(".score")


def _relative_error(ours: Tensor, theirs: Tensor) -> Tensor:
    return (ours.float() - theirs.float()).square().mean() / theirs.float().square().mean().clamp_min(1e-12)
