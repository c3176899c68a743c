"""How long training takes on this machine, from a few steps that are thrown away."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

import numpy as np
import torch

from privit.config import TrainConfig
from privit.data.datasets import Split, preprocess_split
from privit.plan import Plan, uniform_plan
from privit.train.loop.losses import classification, distillation
from privit.train.loop.optimize import make_optimizer
from privit.train.stages import Subject, planned_student

STEPS = 3


def seconds_per_image(
    subject: Subject,
    weights: Mapping[str, np.ndarray],
    images: Split,
    config: TrainConfig,
    plan: Plan | None = None,
) -> float:
    """What one image takes to be read and learned from: the median of a few steps after a first one.

    Of the untouched model, or with a plan of a student that runs by it and learns from the untouched model.
    """
    untouched = planned_student(subject.spec, uniform_plan(subject.spec), weights)
    student = untouched if plan is None else planned_student(subject.spec, plan, weights)
    count = min(config.batch_size, len(images))
    labels = torch.from_numpy(images.labels[:count])
    optimizer, taken = make_optimizer(student, config, None), []
    for _ in range(1 + STEPS):
        started = time.monotonic()
        pixels = torch.from_numpy(preprocess_split(images, subject.preprocessing, np.arange(count)))
        logits = student(pixels)
        loss = classification(logits, labels)
        if plan is not None:
            with torch.no_grad():
                taught = untouched(pixels)
            loss = loss + distillation(logits, taught, 1.0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.monotonic() - started)
    return statistics.median(taken[1:]) / count
