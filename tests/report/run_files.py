"""Folders of runs as the stages leave them, without their weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweep_files import SPEC, plan_of

from privit.plan import save_plan
from privit.runs import Run, open_run


def write_run(
    folder: Path,
    stage: str,
    accuracy: float | None,
    budget: tuple[int, int] | None = None,
    seed: int = 0,
    **fields: Any,
) -> Run:
    """A run; without an accuracy it is unfinished. `fields` go into its config."""
    notes = {} if stage == "teacher" else {"teacher": "../teacher"}
    run = open_run(folder, stage, {"seed": seed} | fields, {}, 1, notes)
    model = {"spec": SPEC.to_json(), "class_names": list("abcdefghij"), "data": {"name": "digits"}}
    (folder / "model.json").write_text(json.dumps(model))
    save_plan(plan_of(budget), folder / "plan.safetensors")
    if accuracy is not None:
        run.finish({"stage": stage, "accuracy": accuracy})
    return run


def write_line(root: Path, seed: int, accuracy: float) -> None:
    """Teacher, search and fine-tune of one seed."""
    write_run(root / "teacher", "teacher", 0.97, seed=seed)
    write_run(root / "search", "search", 0.9, (4, 8), seed)
    write_run(root / "finetune", "finetune", accuracy, (4, 8), seed)
