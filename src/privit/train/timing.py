"""How long training takes on this machine, from a few steps that are thrown away."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import torch

from privit.config import TrainConfig
from privit.data.datasets import Split, preprocess_split
from privit.plan import uniform_plan
from privit.train.loop.losses import classification
from privit.train.loop.optimize import make_optimizer
from privit.train.stages import Subject, planned_student

STEPS = 3


def seconds_per_image(
    subject: Subject, weights: Mapping[str, np.ndarray], images: Split, config: TrainConfig
) -> float:
    """What one image takes in a step of the untouched model: the fastest of a few steps after a first one.

    Others who use the machine just now would only add to it.
    """
    student = planned_student(subject.spec, uniform_plan(subject.spec), weights)
    count = min(config.batch_size, len(images))
    pixels = torch.from_numpy(preprocess_split(images, subject.preprocessing, np.arange(count)))
    labels = torch.from_numpy(images.labels[:count])
    optimizer, taken = make_optimizer(student, config, None), []
    for _ in range(1 + STEPS):
        started = time.monotonic()
        classification(student(pixels), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.monotonic() - started)
    return min(taken[1:]) / count
