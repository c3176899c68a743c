"""How long a step takes is measured on steps that leave no trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from privit.config import FinetuneConfig
from privit.plan import uniform_plan
from privit.runs import load_run
from privit.train.stages import read_model
from privit.train.timing import seconds_per_image


def test_an_image_takes_some_time_and_the_weights_stay(teacher_run: Path) -> None:
    model = read_model(load_run(teacher_run))
    before = {name: value.copy() for name, value in model.weights.items()}
    data = model.subject.load()
    settings = FinetuneConfig(batch_size=16)
    fitted = uniform_plan(model.subject.spec, "quadratic", "quadratic_attn")
    for plan in (None, fitted):
        assert 0 < seconds_per_image(model.subject, model.weights, data.train, settings, plan) < 1
    assert all(np.array_equal(model.weights[name], value) for name, value in before.items())
