"""What a search under budgets in cost stands on: measured losses, ranges, and parameters of every choice.

All of it is measured in the untouched teacher before the first step and kept in the run's folder, so that an
interrupted run goes on with the same figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privit.config import SearchConfig
from privit.cost.budgets.ladder import Losses
from privit.cost.budgets.price import Price
from privit.data.datasets import Data, preprocess_split
from privit.runs import Run, read_arrays, read_json, write_arrays, write_text
from privit.spec import KINDS, Granularity, sites
from privit.train.descent.afford import (
    Affordable,
    choices_of,
    measured_losses,
    refuse_below_floor,
    weighed,
)
from privit.train.fitting.fit import FitConfig, fit_images
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.stages import Model

SCORE_IMAGES = 128
"""Of the images that stand-ins are fitted on, those on which losses are measured."""


@dataclass
class Ground:
    """Plans by budget, parameters of operators that a cut may use, and images for measuring ranges."""

    affordable: Affordable
    spare: dict[str, np.ndarray]
    pixels: np.ndarray


def cost_ground(run: Run, teacher: Model, data: Data, config: SearchConfig, price: Price) -> Ground:
    """Measured anew, or as an interrupted run left it."""
    options, spec = choices_of(config), teacher.subject.spec
    fitting = FitConfig(seed=config.seed)
    pixels = _pixels(teacher, data, fitting)
    images = min(SCORE_IMAGES, len(pixels))
    known = known_measures(run, teacher, options, config.granularity, pixels, fitting, images)
    found = Affordable(
        spec, config.granularity, price, options, weighed(known.losses, config.weigh), dict(known.ranges)
    )
    return Ground(found, known.spare, pixels)


@dataclass(frozen=True)
class Measures:
    """What every choice loses at every site, the parameters it has with, and the untouched model's ranges."""

    losses: Losses
    spare: dict[str, np.ndarray]
    ranges: dict[str, float]


def known_measures(
    run: Run,
    teacher: Model,
    options: Mapping[str, tuple[str, ...]],
    granularity: Granularity,
    pixels: np.ndarray,
    fitting: FitConfig,
    score_images: int,
) -> Measures:
    """Measured anew and kept in the run's folder, or as an interrupted run left it."""
    kept = run.folder / "losses.safetensors"
    if kept.is_file():
        arrays, ranges = read_arrays(kept), read_json(run.folder / "ranges.json")
    else:
        ranges = measure_ranges(teacher.student(), pixels)
        found, spare = measured_losses(teacher, options, granularity, pixels, fitting, score_images)
        arrays = {f"losses/{kind}/{i}": a for kind in KINDS for i, a in enumerate(found[kind])}
        arrays |= {f"spare/{name}": value for name, value in spare.items()}
        write_text(run.folder / "ranges.json", json.dumps(ranges) + "\n")
        write_arrays(kept, arrays)
    # A run from before LayerNorms had sites knows nothing of them: they had one choice.
    shapes = sites(teacher.subject.spec, granularity)
    losses = {
        kind: [
            arrays.get(f"losses/{kind}/{i}", np.zeros((1, *shape))) for i, shape in enumerate(shapes[kind])
        ]
        for kind in KINDS
    }
    extra = {n.removeprefix("spare/"): a for n, a in arrays.items() if n.startswith("spare/")}
    return Measures(losses, extra, dict(ranges))


def refuse_impossible(teacher: Model, data: Data, config: SearchConfig, price: Price) -> None:
    """Refuses a budget below what the cheapest plan costs in this model."""
    ranges = teacher_ranges(teacher, data, config.seed)
    spec, granularity = teacher.subject.spec, config.granularity
    refuse_below_floor(spec, price, choices_of(config), granularity, config.budgets, ranges)


def teacher_ranges(teacher: Model, data: Data, seed: int) -> dict[str, float]:
    """The ranges of the untouched teacher, on the images that a fit with that seed looks at."""
    return measure_ranges(teacher.student(), _pixels(teacher, data, FitConfig(seed=seed)))


def _pixels(teacher: Model, data: Data, fitting: FitConfig) -> np.ndarray:
    """The training images on which stand-ins are fitted and ranges are measured."""
    images = fit_images(len(data.train), fitting)
    return preprocess_split(data.train, teacher.subject.preprocessing, images)
