"""The running of a sweep: what is finished is skipped, what fails is reported, the rest goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import datetime
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any

from privit.errors import PrivitError, RequestError
from privit.locks import FolderLock, lock_folder
from privit.machine.threads import training_environment
from privit.sweep.recipe.model_and_data import check_reachable
from privit.sweep.recipe.recipe import Recipe
from privit.sweep.run.index import result_of, write_cell, write_index
from privit.sweep.run.stages import run_task
from privit.sweep.run.tasks import Cell, Grid, Task

Tell = Callable[[str], None]

DIED = "its process died; see the log, and whether the machine ran out of memory"


def run_sweep(recipe: Recipe, out: Path, jobs: int = 1, tell: Tell | None = None) -> dict[str, Any]:
    """What became of every cell; cells and their index are left in `out`.

    Finished stages are read, interrupted ones go on. `jobs` stages run at a time, each in a process of its
    own with its share of the cores; with one, they run in this process. `tell` gets a line per stage.
    """
    if jobs < 1:
        raise RequestError(f"{jobs} jobs are asked for, but at least 1 was expected", "give 1 or more")
    out = Path(out)
    with _alone(out):
        grid = Grid(recipe)
        sweep = Sweep(out, grid, tell or (lambda _: None))
        if sweep.waiting:
            _check_data(recipe)
        facts: dict[str, Any] = {
            "started": datetime.now().isoformat(timespec="seconds"),
            "jobs": jobs,
            "cores": os.cpu_count(),
            "load_at_start": round(os.getloadavg()[0], 2),
        }
        began = time.monotonic()
        try:
            sweep.finish_cells()
            with _workers(jobs) as pool:
                sweep.go(pool, jobs)
        finally:
            facts["seconds"] = round(time.monotonic() - began, 1)
            facts |= {"stages_run": sweep.done, "cpu_seconds": round(sweep.cpu_seconds, 1)}
            write_index(out, recipe, grid.cells, sweep.statuses, facts)
    return sweep.summary() | {"recipe": recipe.name, "out": str(out)} | facts


class Sweep:
    """A sweep under way: which tasks wait, which failed, which cells are there."""

    def __init__(self, out: Path, grid: Grid, tell: Tell):
        self.out, self.grid, self.tell = out, grid, tell
        self.waiting = needed(out, grid)
        self.failed: dict[str, str] = {}
        self.statuses: dict[str, str] = {}
        self.done, self.cpu_seconds = 0, 0.0
        self.total = len(self.waiting)

    def ready(self) -> list[Task]:
        """The tasks that nothing unfinished stands before, in order."""
        return [
            self.grid.tasks[name]
            for name in self.waiting
            if not any(before in self.waiting for before in self.grid.tasks[name].after)
        ]

    def go(self, pool: Pool, jobs: int) -> None:
        """Runs everything that waits."""
        running: dict[Future[dict[str, Any]], Task] = {}
        retried: set[str] = set()
        try:
            while self.waiting:
                busy = {task.name for task in running.values()}
                for task in self.ready():
                    if len(running) < jobs and task.name not in busy:
                        running[pool.submit(run_task, self.out, task)] = task
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    task = running.pop(future)
                    try:
                        self.end(task, **future.result())
                    except BrokenProcessPool:
                        # Every stage that was under way ends so: each gets one more try.
                        pool.renew()
                        if task.name in retried:
                            self.end(task, DIED, 0.0, 0.0)
                        retried.add(task.name)
        finally:
            for future in running:
                future.cancel()

    def end(self, task: Task, error: str | None, seconds: float, cpu_seconds: float) -> None:
        """Notes how a task ended, with all that could only follow it, and writes the cells it ended."""
        self.waiting.remove(task.name)
        self.done += 1
        self.cpu_seconds += cpu_seconds
        if error is not None:
            self._fail(task, error)
        head = f"[{self.total - len(self.waiting)}/{self.total}]"
        self.tell(f"{head} {describe(self.out, task, error)} ({seconds:.0f} s)")
        self.finish_cells()

    def finish_cells(self) -> None:
        """Writes the file of every cell whose tasks are done or cannot be done."""
        for cell in self.grid.cells:
            if self.statuses.get(cell.folder, "missing") == "missing":
                problem = self._problem(cell)
                self.statuses[cell.folder] = write_cell(self.out, cell, problem)

    def _problem(self, cell: Cell) -> str | None:
        return next((self.failed[t] for t in (cell.result, *cell.asked) if t in self.failed), None)

    def _fail(self, task: Task, error: str) -> None:
        """Fails a task and everything that waits for it."""
        self.failed[task.name] = error
        lost = {task.name}
        # The grid's order has every task behind those it needs.
        for name in list(self.waiting):
            if lost & set(self.grid.tasks[name].after):
                lost.add(name)
                self.waiting.remove(name)
                self.failed[name] = f"{task.name} failed: {error}"

    def summary(self) -> dict[str, Any]:
        """How many cells are done, and which failed and why."""
        failed = [
            {"cell": cell.folder, "error": self._problem(cell) or "failed"}
            for cell in self.grid.cells
            if self.statuses[cell.folder] == "failed"
        ]
        return {"cells": len(self.grid.cells), "done": len(self.grid.cells) - len(failed), "failed": failed}


def needed(out: Path, grid: Grid) -> list[str]:
    """The unfinished tasks that some unfinished cell needs, in an order in which they can be done."""
    wanted: set[str] = set()
    stack = [task for cell in grid.cells for task in (cell.result, *cell.asked)]
    while stack:
        name = stack.pop()
        if name not in wanted and result_of(out, name) is None:
            wanted.add(name)
            stack += grid.tasks[name].after
    return [name for name in grid.tasks if name in wanted]


def describe(out: Path, task: Task, error: str | None) -> str:
    """A line on how a task ended."""
    seed = task.name.split("-")[-2]
    text = f"{task.stage} {task.title} seed {seed}"
    if error is not None:
        return f"FAILED {text}: {error.splitlines()[0]}"
    accuracy = (result_of(out, task.name) or {}).get("accuracy")
    return f"{text}: {accuracy:.2%}" if isinstance(accuracy, float) else text


def _check_data(recipe: Recipe) -> None:
    problems = []
    settings = (experiment.setting for experiment in recipe.experiments)
    for model, data in sorted({(setting.model, setting.data) for setting in settings}):
        try:
            check_reachable(model, data)
        except PrivitError as error:
            problems.append(f"{error.message} ({error.hint})")
    if problems:
        raise RequestError("; ".join(problems), "nothing was started")


class Pool:
    """Where tasks run: in this process, or in several of their own."""

    def __init__(self, jobs: int):
        self.jobs = jobs
        self.executor: Executor | None = None
        self.renew()

    def renew(self) -> None:
        """Starts new processes in the place of dead ones."""
        self.close()
        if self.jobs > 1:
            self.executor = ProcessPoolExecutor(
                self.jobs, mp_context=get_context("spawn"), initializer=_end_with_parent
            )

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """The future of a call; in this process it is over at once."""
        if self.executor is not None:
            return self.executor.submit(function, *arguments)
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future

    def close(self) -> None:
        """Lets what runs come to its end and starts nothing more."""
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)
            self.executor = None


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone: a sweep that is killed holds no run's lock."""

    def watch(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    if (parent := parent_process()) is not None:
        Thread(target=watch, args=(parent,), daemon=True).start()


@contextmanager
def _workers(jobs: int) -> Iterator[Pool]:
    """Processes with their share of the cores."""
    wanted = training_environment(jobs)
    before = {name: os.environ.get(name) for name in wanted}
    if jobs > 1:
        os.environ.update(wanted)
    pool = Pool(jobs)
    try:
        yield pool
    finally:
        pool.close()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _alone(out: Path) -> FolderLock:
    """Refuses to run beside another sweep in the same folder: both would write the same runs."""
    if out.exists() and not out.is_dir():
        raise RequestError(f"{out} is a file, but a sweep needs a folder", "give another --out")
    out.mkdir(parents=True, exist_ok=True)
    return lock_folder(out)
