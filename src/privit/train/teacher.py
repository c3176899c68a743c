"""The teacher stage: fine-tune a pretrained model, or train a fresh one, on the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Preprocessing
from privit.config import TeacherConfig, check_config
from privit.data.datasets import default_preprocessing, load_data
from privit.spec import Spec
from privit.train.hosts.fresh import parse_spec, random_weights
from privit.train.loop.batches import with_noise
from privit.train.loop.loop import Loop, Stage, make_accelerator
from privit.train.stages import (
    Subject,
    accuracy_on_test,
    close_run,
    exact_plan,
    make_feed,
    planned_student,
    start_run,
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
    spec, weights, preprocessing = starting_point(model, len(loaded.class_names), config)
    accelerator = make_accelerator(config)
    opened = start_run(run, "teacher", config, {"model": model, "data": data}, accelerator)
    if (finished := opened.result()) is not None:
        return finished
    subject = Subject(spec, preprocessing or default_preprocessing(loaded, spec), loaded.class_names, chosen)
    plan = exact_plan(spec)
    stage = TeacherStage(planned_student(spec, plan, weights), config, config.select)
    feed = make_feed(loaded, subject, config)
    if config.input_noise:
        feed.augment = with_noise(feed.augment, config.input_noise, config.seed)
    loop = Loop(stage, feed, opened, accelerator)
    loop.go()
    best = planned_student(subject.spec, plan, stage.best_weights)
    result = {
        "accuracy": accuracy_on_test(loop, best, subject, loaded),
        "validation_accuracy": stage.best_accuracy,
    }
    if accelerator.is_main_process:
        write_model(opened.folder, subject, plan, stage.best_weights)
    return close_run(opened, result, accelerator)


def starting_point(
    model: str, classes: int, config: TeacherConfig
) -> tuple[Spec, dict[str, np.ndarray], Preprocessing | None]:
    """Spec, weights and preprocessing that training starts from; a model that cannot be is refused."""
    if model.startswith("vit:"):
        spec = parse_spec(model.removeprefix("vit:"), classes, config.image_size)
        return spec, random_weights(spec, config.seed), None
    # timm takes seconds to import, and a fresh model needs nothing of it.
    from privit.train.hosts.convert import load_host

    # The head of a named architecture is of other data, wherever its weights lie.
    named = model.startswith(("timm:", "hf:"))
    new_head = named if config.new_head is None else config.new_head
    host = load_host(model, classes, config.image_size, config.pretrained, config.seed, new_head)
    return host.spec, host.weights, host.preprocessing
