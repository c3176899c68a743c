"""The work of one task: a stage of training, or the measuring of a finished run."""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privit.config import FinetuneConfig, SearchConfig, TeacherConfig, from_json
from privit.errors import PrivitError
from privit.plan import uniform_plan
from privit.runs import load_run, write_text
from privit.sweep.run.plans import given_plan
from privit.sweep.run.possible import (
    check_met,
    note_refused,
    possible_budgets,
    search_untrained,
)
from privit.sweep.run.tasks import Task


def run_task(out: Path, task: Task) -> dict[str, Any]:
    """How a task ended: `error` is None or what went wrong; what it printed is in OUT/logs."""
    started, cpu_started = time.monotonic(), time.process_time()
    log = out / "logs" / f"{task.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    error = None
    with log.open("a") as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(file):
        try:
            STAGES[task.stage](out / "stages", task)
        except PrivitError as problem:
            error = problem.message
            file.write(f"error: {problem}\n")
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
            file.write(traceback.format_exc())
    cpu_seconds = time.process_time() - cpu_started
    return {"error": error, "seconds": time.monotonic() - started, "cpu_seconds": cpu_seconds}


def _teacher(stages: Path, task: Task) -> None:
    from privit.train.teacher import train_teacher

    wanted = task.settings
    config = from_json(TeacherConfig, wanted["config"])
    train_teacher(wanted["model"], wanted["data"], stages / task.name, config)


def _search(stages: Path, task: Task) -> None:
    from privit.train.search import search

    config, teacher = from_json(SearchConfig, task.settings["config"]), stages / task.settings["teacher"]
    config, refused = possible_budgets(teacher, config)
    if not task.settings.get("training", True):
        search_untrained(teacher, stages / task.name, config)
        note_refused(stages / task.name, refused)
        return
    initial = None
    if task.settings["fitted"]:
        from privit.train.fitting.fit import FitConfig
        from privit.train.training_free import fitted_start

        fitting = FitConfig(seed=config.seed)
        initial = fitted_start(
            teacher, config.granularity, config.stand_in, fitting, config.kinds, config.tokens
        )
    search(teacher, stages / task.name, config, initial)
    note_refused(stages / task.name, refused)


def _matching(stages: Path, task: Task) -> None:
    from privit.train.baselines import match
    from privit.train.stages import read_model

    teacher = stages / task.settings["teacher"]
    plan = uniform_plan(read_model(load_run(teacher)).subject.spec, **task.settings["operators"])
    match(teacher, stages / task.name, plan, from_json(FinetuneConfig, task.settings["config"]))


def _finetune(stages: Path, task: Task) -> None:
    from privit.train.finetune import finetune

    wanted = task.settings
    config, source = from_json(FinetuneConfig, wanted["config"]), stages / wanted["source"]
    check_met(source, wanted["budget"])
    plan = None if wanted["plan"] is None else given_plan(stages, source, wanted["budget"], wanted["plan"])
    finetune(source, stages / task.name, config, wanted["budget"], plan)


def _result(stages: Path, task: Task) -> None:
    from privit.sweep.run.results import result_of_run

    check_met(stages / task.settings["run"], task.settings.get("budget"))
    _write_result(stages, task, result_of_run(stages, task.name, task.settings))


def _ask(stages: Path, task: Task) -> None:
    from privit.sweep.run.answers import ANSWERS

    _write_result(stages, task, ANSWERS[task.stage](stages, task.name, task.settings))


def _write_result(stages: Path, task: Task, result: dict[str, Any]) -> None:
    folder = stages / task.name
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "result.json", json.dumps(result, indent=2) + "\n")


STAGES: dict[str, Callable[[Path, Task], None]] = {
    "teacher": _teacher,
    "search": _search,
    "matching": _matching,
    "finetune": _finetune,
    "result": _result,
    "bench": _ask,
    "agreement": _ask,
    "private": _ask,
}
