"""The verb that runs grids: sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tyro.conf import Positional

from privit.cli.output import note, show_fields, show_json, show_rows
from privit.errors import WorkError


def sweep(
    recipe: Positional[Path],
    out: Path | None = None,
    jobs: int = 1,
    check: bool = False,
    json: bool = False,
) -> None:
    """Run every cell of a recipe: methods, budgets and seeds, compared in one harness.

    Args:
        recipe: A TOML file, such as recipes/mini/quick.toml.
        out: Folder of cells and runs, runs/sweeps/SIZE by default; the same command goes on where it stopped.
        jobs: Stages at a time, each in its own process with its share of the cores.
        check: Only say what would run.
        json: Print one JSON object.
    """
    from privit.sweep.recipe.recipe import read_recipe
    from privit.sweep.run.runner import needed, run_sweep
    from privit.sweep.run.tasks import Grid

    read = read_recipe(recipe)
    folder = out or Path("runs/sweeps") / read.name.partition("/")[0]
    if check:
        grid = Grid(read)
        left = needed(folder, grid)
        stages = {stage: sum(name.startswith(stage) for name in left) for stage in _STAGES}
        plan = {"recipe": read.name, "cells": len(grid.cells), "stages_to_run": stages, "out": str(folder)}
        show_json(plan) if json else show_fields(read.name, plan)
        return
    result = run_sweep(read, folder, jobs, note)
    if json:
        show_json(result)
    else:
        shown = ("cells", "done", "stages_run", "seconds", "cpu_seconds", "load_at_start", "out")
        show_fields(read.name, {name: result[name] for name in shown})
        if result["failed"]:
            show_rows("failed", ("cell", "why"), [(f["cell"], f["error"]) for f in result["failed"]])
    if result["failed"]:
        raise WorkError(
            f"{len(result['failed'])} of {result['cells']} cells failed",
            f"the same command tries them again; what they printed is in {folder / 'logs'}",
        )
    note(f"privit report {folder} makes tables and figures of it")


_STAGES = ("teacher", "search", "matching", "finetune", "result", "bench", "agreement", "private")

VERBS: dict[str, Callable[..., None]] = {"sweep": sweep}
