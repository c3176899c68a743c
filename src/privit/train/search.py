"""The search stage: from a teacher and a budget to a plan and the weights that go with it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import weights_hash
from privit.config import SearchConfig, check_config
from privit.plan import Plan, load_plan
from privit.runs import Run, load_run, read_arrays, read_json, write_text
from privit.train.descent.cost_descent import CostLevel, CostStage, cost_levels, cost_stage
from privit.train.descent.cost_ground import cost_ground, refuse_impossible
from privit.train.descent.descent import Level, SearchStage, levels_of
from privit.train.hosts.fresh import random_weights
from privit.train.loop.loop import Loop, make_accelerator
from privit.train.stages import (
    Model,
    Subject,
    accuracy_on_test,
    close_run,
    describe_plan,
    make_feed,
    model_hash,
    planned_student,
    read_model,
    start_run,
    teacher_of,
    write_cut,
    write_model,
)
from privit.train.student.vit import Student


def search(
    teacher_run: Path,
    run: Path,
    config: SearchConfig | None = None,
    initial_weights: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """The result of a search under the config's budgets; an interrupted run goes on, a finished one is read.

    `initial_weights` replace the teacher's by name; with them come the parameters of fitted stand-ins.
    """
    config = config or SearchConfig()
    check_config(config)
    source = load_run(teacher_run, "teacher")
    teacher = read_model(source)
    start = teacher.with_tokens(config.tokens)
    levels: list[Any] = (
        levels_of(config.budgets, start.subject.spec, config)
        if config.price is None
        else cost_levels(config.budgets, start.subject.spec, config.granularity)
    )
    given = None if initial_weights is None else weights_hash(initial_weights)
    inputs = {"teacher": model_hash(teacher), "initial_weights": given}
    if config.price is not None and not (Path(run) / "config.json").is_file():
        # Said before there is a folder, so that the next try can have the same name.
        refuse_impossible(start, teacher.subject.load(), config, config.price)
    accelerator = make_accelerator(config)
    notes = {"teacher": os.path.relpath(source.folder, run), "data": teacher.subject.data["name"]}
    opened = start_run(run, "search", config, inputs, accelerator, notes)
    if (finished := opened.result()) is not None:
        return finished
    data = teacher.subject.load()
    student = _student(start, config, initial_weights)
    if config.price is None:
        stage = SearchStage(student, config, levels, _snapshot_into(opened))
    else:
        with accelerator.main_process_first():
            ground = cost_ground(opened, start, data, config, config.price)
        stage = cost_stage(student, config, levels, _snapshot_into(opened), ground, initial_weights)
    feed = make_feed(data, teacher.subject, config, teacher_of(teacher, config))
    loop = Loop(stage, feed, opened, accelerator)
    loop.go()
    accelerator.wait_for_everyone()
    budgets = {level.name: _measure(loop, opened, level, start.subject, data) for level in levels}
    if isinstance(stage, CostStage):
        for level in levels:
            budgets[level.name] |= stage.describe(level)
    last = budgets[levels[-1].name]
    if accelerator.is_main_process:
        for text in stage.warnings:
            print(f"warning: {text}", file=sys.stderr)
        write_model(opened.folder, start.subject, stage.student.plan(), stage.student.weights())
    result = last | {"budgets": budgets, "warnings": stage.warnings}
    result |= {"lambda": {kind: penalty.value for kind, penalty in stage.penalties.items()}}
    return close_run(opened, result, accelerator)


def cut_folder(run: Run, budget: str) -> Path:
    """Where a search keeps the plan and weights of one of its budgets."""
    return run.folder / "budgets" / budget


def _student(start: Model, config: SearchConfig, initial: Mapping[str, np.ndarray] | None) -> Student:
    spec = start.subject.spec
    student = Student(spec, config.granularity, config.exact, config.stand_in, config.kinds)
    weights = start.weights if config.start == "teacher" else random_weights(spec, config.seed)
    student.load_weights(dict(weights) | dict(initial or {}))
    return student


def _snapshot_into(run: Run) -> Any:
    def snapshot(name: str, plan: Plan, weights: Mapping[str, np.ndarray], accuracy: float) -> None:
        folder = cut_folder(run, name)
        write_cut(folder, plan, weights)
        write_text(folder / "cut.json", json.dumps({"validation_accuracy": accuracy}) + "\n")

    return snapshot


def _measure(loop: Loop, run: Run, level: Level, subject: Subject, data: Any) -> dict[str, Any]:
    folder = cut_folder(run, level.name)
    plan = load_plan(folder / "plan.safetensors")
    student = planned_student(subject.spec, plan, read_arrays(folder / "weights.safetensors"))
    figures: dict[str, Any] = {"accuracy": accuracy_on_test(loop, student, subject, data)}
    figures |= read_json(folder / "cut.json")
    figures |= describe_plan(plan)
    return figures if isinstance(level, CostLevel) else figures | {"budget": level.sites}
