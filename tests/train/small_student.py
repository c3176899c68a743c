"""A small student whose nonlinearities matter, and pictures on which it is fitted."""

from __future__ import annotations

import numpy as np
import torch

from privit.plan import uniform_plan
from privit.spec import Granularity, Spec, vit_spec
from privit.train.fitting.fit import FitConfig
from privit.train.hosts.fresh import random_weights
from privit.train.student.vit import Student

SPEC = vit_spec(image_size=16, patch_size=4, width=24, depth=3, heads=3, classes=5, mlp_width=40)
PLAIN = FitConfig(weighting="uniform", refit=False, ridge=0.0)


def images(count: int = 48, spec: Spec = SPEC) -> np.ndarray:
    """Smooth pictures, so that tokens differ."""
    noise = np.random.default_rng(0).normal(size=(count, spec.channels, 4, 4))
    return np.kron(noise, np.ones((spec.image_size // 4, spec.image_size // 4))).astype(np.float32)


def student(
    spec: Spec = SPEC,
    gelu: str = "gelu",
    softmax: str = "softmax",
    norm: str = "layer_norm",
    granularity: Granularity | None = None,
) -> Student:
    """A frozen student with weights large enough for its nonlinearities to matter."""
    made = Student(spec, granularity)
    made.set_plan(uniform_plan(spec, gelu, softmax, granularity, norm))
    louder = {"qkv.weight": 30, "up.weight": 30, "out.weight": 5, "down.weight": 5}
    weights = random_weights(spec, seed=1)
    made.load_weights({name: w * louder.get(name.partition(".")[2][2:], 1) for name, w in weights.items()})
    return made


def logits(model: Student, pixels: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(pixels)).numpy()


def error(model: Student, pixels: np.ndarray) -> float:
    """Distance of a model's logits from the untouched one's."""
    moved = logits(model, pixels).astype(np.float64) - logits(student(), pixels)
    # What an unfitted linear norm lets grow without bound is infinitely far.
    return float(np.square(moved).mean()) if np.isfinite(moved).all() else np.inf
