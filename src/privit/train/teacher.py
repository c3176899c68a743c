"""The teacher stage: fine-tune a pretrained model, or train a fresh one, on the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privit.config import TeacherConfig, check_config, to_json
from privit.data import default_preprocessing, load_data
from privit.runs import open_run
from privit.train.convert import load_host
from privit.train.loop import Loop, Stage, make_accelerator
from privit.train.stages import (
    Subject,
    accuracy_on_test,
    close_run,
    exact_plan,
    make_feed,
    planned_student,
    threads,
    write_model,
)


class TeacherStage(Stage):
    """Plain training of the untouched model."""

    name = "teacher"


def train_teacher(model: str, data: str, run: Path, config: TeacherConfig | None = None) -> dict[str, Any]:
    """The result of training `model` on `data`; a finished run is returned, an interrupted one goes on."""
    config = config or TeacherConfig()
    check_config(config)
    chosen: dict[str, Any] = {
        "name": data,
        "seed": config.data_seed,
        "train_limit": config.train_limit,
        "validation_share": config.validation_share,
    }
    loaded = load_data(**chosen)
    from_hub = model.startswith(("timm:", "hf:")) and "@" not in model
    host = load_host(
        model,
        len(loaded.class_names),
        config.image_size,
        pretrained=config.pretrained,
        seed=config.seed,
        new_head=from_hub if config.new_head is None else config.new_head,
    )
    accelerator = make_accelerator(config)
    with accelerator.main_process_first():
        opened = open_run(run, "teacher", to_json(config), {"model": model, "data": data}, threads())
    if (finished := opened.result()) is not None:
        return finished
    preprocessing = host.preprocessing or default_preprocessing(loaded, host.spec)
    subject = Subject(host.spec, preprocessing, loaded.class_names, chosen)
    plan = exact_plan(host.spec)
    stage = TeacherStage(planned_student(host.spec, plan, host.weights), config, config.select)
    loop = Loop(stage, make_feed(loaded, subject, config), opened, accelerator)
    loop.go()
    best = planned_student(subject.spec, plan, stage.best_weights)
    result = {
        "accuracy": accuracy_on_test(loop, best, subject, loaded),
        "validation_accuracy": stage.best_accuracy,
    }
    if accelerator.is_main_process:
        write_model(opened.folder, subject, plan, stage.best_weights)
    return close_run(opened, result, accelerator)
