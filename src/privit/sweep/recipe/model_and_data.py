"""What can be known of a recipe's model and data before either is loaded."""

from __future__ import annotations

import math
import os
from pathlib import Path

from privit.data.catalog import catalog_spec
from privit.data.sources import HUB_NAMES, data_file
from privit.errors import PrivitError, RequestError
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
        if file and not _may_be_there(file):
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


def check_reachable(model: str, data: str) -> None:
    """Looks for what the model and the data need, so that what is missing stops a sweep before it starts."""
    from privit.data.datasets import load_data

    file = model.partition("@")[2]
    if file and not data_file(file).is_file():
        raise RequestError(f"there is no file {file} for {model}", f"put it into $PRIVIT_DATA/{file}")
    load_data(data)


def _may_be_there(file: str) -> bool:
    """A bare name may lie below a $PRIVIT_DATA that is not set yet; a sweep looks again when it starts."""
    return data_file(file).is_file() or ("PRIVIT_DATA" not in os.environ and Path(file).name == file)


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
