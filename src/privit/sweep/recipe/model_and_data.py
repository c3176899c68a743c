"""What can be known of a recipe's model and data before either is loaded."""

from __future__ import annotations

import math
from pathlib import Path

from privit.data.catalog import catalog_spec
from privit.data.sources import HUB_NAMES
from privit.errors import PrivitError
from privit.plan import site_budget
from privit.spec import Granularity, Spec, sites

ANY_CLASSES = 10
"""The number of classes changes no site."""


def known_spec(model: str, image_size: int | None, problems: list[str]) -> Spec | None:
    """The model's spec, or None where only loading it would tell; a model that cannot be is a problem."""
    try:
        if model.startswith("vit:"):
            from privit.train.hosts.fresh import parse_spec

            return parse_spec(model.removeprefix("vit:"), ANY_CLASSES, image_size)
        name, _, file = model.partition("@")
        if not model.startswith(("timm:", "hf:")):
            name, file = Path(model.partition(":")[0]).stem, model.partition(":")[0]
        if file and not Path(file).is_file():
            problems.append(f"model is {model!r}, but there is no file {file}")
    except PrivitError as error:
        problems.append(f"model is {model!r}: {error.message}")
        return None
    try:
        return catalog_spec(name, image_size, ANY_CLASSES)
    except PrivitError:
        return None


def check_data(name: str, problems: list[str]) -> None:
    """Adds a problem if the data are in a folder that is not there; the hub is not asked."""
    if name == "digits" or name in HUB_NAMES or name.startswith("hf:"):
        return
    if not Path(name).is_dir():
        known = ", ".join(("digits", *HUB_NAMES))
        problems.append(f"data is {name!r}, but there is no such folder here; known names: {known}, hf:NAME")


def check_reachable(name: str) -> None:
    """Loads what there is to know of the data, so that missing data stop a sweep before it starts."""
    from privit.data.datasets import load_data

    load_data(name)


def site_counts(
    values: dict[str, float], spec: Spec | None, granularity: Granularity
) -> tuple[dict[str, int], list[str]]:
    """A budget in sites, and what is impossible about it; without a spec, shares of a very large model."""
    counts, problems = {}, []
    for kind, value in values.items():
        total = 1 << 40
        if spec is not None:
            total = sum(math.prod(shape) for shape in sites(spec, granularity)[kind])
        try:
            counts[kind] = site_budget(value, total, kind)
        except PrivitError as error:
            problems.append(error.message)
    return counts, problems
