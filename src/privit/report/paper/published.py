"""The numbers that the paper prints or draws, each under the label of its table or figure.

The paper: PriViT, Dhyani et al. 2023 (arXiv 2310.04604). Accuracies in per cent, as printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from privit.report.paper.published_tables import GELU_ONLY

VIT_TINY = "ViT-Tiny, 224 px"
MPCVIT_SMALL = "MPCViT, 7 layers, 32 px"
MPCVIT_LARGE = "MPCViT, 9 layers, 64 px"
UNSTATED = "model not stated"

TINY_IMAGENET, CIFAR10, CIFAR100 = "tiny-imagenet", "cifar10", "cifar100"

RELU_OPS = "relu_ops"
SECONDS = "seconds_lan"
SOFTMAX = "kept_softmax_rows"
GELU = "kept_gelu_elements"

_SCALE = {RELU_OPS: 1e6, SECONDS: 1.0, SOFTMAX: 1.0, GELU: 1e3}
"""The paper prints ReLUOps in millions and GELUs in thousands."""


@dataclass(frozen=True)
class Series:
    """One line or column of the paper: (cost as printed, accuracy in per cent) each."""

    label: str
    method: str
    data: str
    model: str
    axis: str
    printed: tuple[tuple[float, float], ...]
    note: str = ""

    @property
    def points(self) -> list[tuple[float, float]]:
        """(cost in the axis' own unit, accuracy as a share of 1), cheapest first."""
        return sorted((cost * _SCALE[self.axis], accuracy / 100) for cost, accuracy in self.printed)


_TINY_FRONT = ((151.75, 69.8), (128.23, 66.98), (110.60, 64.46), (93.72, 60.53))
_PARETO = "fig: pareto curve c10/100"
_SECONDS = "the unlabelled seconds table"
_COMPARISONS = {_PARETO, _SECONDS, "secretflow_c10", "tab:tinyimagenet_comparison"}
_SEMI2K = "semi2k between two nodes of a cluster; online phase only"

SERIES: tuple[Series, ...] = (
    Series("tab:tinyimagenet_comparison", "PriViT-G", TINY_IMAGENET, VIT_TINY, RELU_OPS, _TINY_FRONT),
    Series(
        "tab:tinyimagenet_comparison",
        "PriViT-R",
        TINY_IMAGENET,
        VIT_TINY,
        RELU_OPS,
        ((69.11, 64.73), (67.08, 61.05), (69.28, 56.83), (82.77, 57.65)),
    ),
    Series(
        "tab:tinyimagenet_comparison",
        "MPCViT",
        TINY_IMAGENET,
        MPCVIT_LARGE,
        RELU_OPS,
        ((381.42, 62.55), (331.35, 63.7), (307.45, 63.36), (282.42, 62.62)),
    ),
    Series(
        _SECONDS,
        "PriViT-G",
        TINY_IMAGENET,
        VIT_TINY,
        SECONDS,
        ((31.77, 78.88), (28.45, 78.16), (20.47, 75.5), (14.41, 64.46)),
        _SEMI2K,
    ),
    Series(
        _SECONDS,
        "MPCViT",
        TINY_IMAGENET,
        MPCVIT_LARGE,
        SECONDS,
        ((150.83, 62.55), (95.75, 63.7), (71.04, 63.36), (43.96, 62.62)),
        _SEMI2K,
    ),
    Series(
        _SECONDS,
        "PriViT-G",
        CIFAR100,
        VIT_TINY,
        SECONDS,
        ((17.75, 78.51), (14.21, 80.49), (14.08, 78.5), (11.69, 77.74)),
        _SEMI2K,
    ),
    Series(
        _SECONDS,
        "MPCViT",
        CIFAR100,
        MPCVIT_SMALL,
        SECONDS,
        ((9.16, 77.8), (8.76, 76.9), (8.21, 76.9), (7.86, 76.4)),
        _SEMI2K,
    ),
    Series(
        _SECONDS,
        "PriViT-R",
        CIFAR100,
        VIT_TINY,
        SECONDS,
        ((16.77, 78.37), (13.46, 78.73), (10.62, 77.1), (12.43, 76.59)),
        _SEMI2K,
    ),
    Series(
        _SECONDS,
        "MPCViT+",
        CIFAR100,
        MPCVIT_SMALL,
        SECONDS,
        ((9.05, 77.1), (8.77, 76.8), (8.37, 76.3), (7.94, 76.2)),
        _SEMI2K,
    ),
    Series(
        "secretflow_c10",
        "PriViT-G",
        CIFAR10,
        VIT_TINY,
        SECONDS,
        ((21.13, 96.31), (19.27, 95.31), (15.99, 95.58), (14.43, 95.14), (14.37, 94.52), (11.6, 94.44)),
        _SEMI2K,
    ),
    Series(
        "secretflow_c10",
        "MPCViT",
        CIFAR10,
        MPCVIT_SMALL,
        SECONDS,
        ((10.39, 94.3), (9.85, 94.2), (9.39, 94.1), (8.96, 93.6)),
        _SEMI2K,
    ),
    Series(
        "secretflow_c10",
        "PriViT-R",
        CIFAR10,
        VIT_TINY,
        SECONDS,
        ((18.74, 94.45), (17.83, 92.45), (13.26, 92.36), (13.01, 92.39), (10.24, 91.08)),
        _SEMI2K,
    ),
    Series(
        "secretflow_c10",
        "MPCViT+",
        CIFAR10,
        MPCVIT_SMALL,
        SECONDS,
        ((5.57, 93.3), (6.38, 93.9), (7.39, 94.2), (6.83, 94.3)),
        _SEMI2K,
    ),
    Series(
        _PARETO,
        "PriViT-R",
        CIFAR100,
        VIT_TINY,
        RELU_OPS,
        ((65.18, 78.37), (49.25, 78.73), (34.60, 73.19), (33.95, 71.51), (33.58, 70.17)),
        "four of the five lie below LayerNorm plus x^2, so their x^2 is not counted",
    ),
    Series(
        _PARETO,
        "PriViT-G",
        CIFAR100,
        VIT_TINY,
        RELU_OPS,
        (
            (147.61, 82.58),
            (131.27, 82.55),
            (116.67, 81.98),
            (106.32, 80.49),
            (88.24, 78.5),
            (75.92, 77.74),
            (67.54, 75.47),
        ),
    ),
    Series(
        _PARETO,
        "MPCViT",
        CIFAR100,
        MPCVIT_SMALL,
        RELU_OPS,
        ((72.21, 77.8), (71.77, 76.9), (71.40, 76.9), (70.96, 76.4)),
    ),
    Series(
        _PARETO,
        "MPCViT+",
        CIFAR100,
        MPCVIT_SMALL,
        RELU_OPS,
        ((58.10, 76.2), (58.54, 76.3), (58.91, 76.8), (63.36, 77.1)),
    ),
    Series(
        _PARETO,
        "PriViT-R",
        CIFAR10,
        VIT_TINY,
        RELU_OPS,
        ((82.75, 94.84), (82.61, 94.56), (81.68, 94.29), (59.40, 93.39)),
    ),
    Series(
        _PARETO,
        "PriViT-G",
        CIFAR10,
        VIT_TINY,
        RELU_OPS,
        ((109.24, 96.14), (95.64, 95.47), (84.16, 94.69), (59.62, 93.48)),
    ),
    Series(
        _PARETO,
        "MPCViT",
        CIFAR10,
        MPCVIT_SMALL,
        RELU_OPS,
        ((72.21, 94.3), (71.77, 94.2), (71.40, 94.1), (70.96, 93.6)),
    ),
    Series(
        _PARETO,
        "MPCViT+",
        CIFAR10,
        MPCVIT_SMALL,
        RELU_OPS,
        ((61.43, 94.2), (54.24, 94.3), (53.80, 93.9), (52.99, 93.3)),
    ),
    Series(
        "fig:TI-kd-ablate",
        "PriViT",
        TINY_IMAGENET,
        VIT_TINY,
        RELU_OPS,
        (
            *_TINY_FRONT,
            (86.51, 59.55),
            (84.78, 59.58),
            (84.13, 59.04),
            (69.42, 58.74),
            (67.43, 58.2),
        ),
    ),
    Series(
        "fig:TI-kd-ablate",
        "no distillation",
        TINY_IMAGENET,
        VIT_TINY,
        RELU_OPS,
        ((179.95, 68.65), (158.59, 66.32), (131.22, 62.84), (105.09, 58.54), (85.39, 54.42)),
    ),
    Series(
        "tab:privit_pretrain_ablate",
        "PriViT",
        TINY_IMAGENET,
        VIT_TINY,
        RELU_OPS,
        ((271.59, 75.5), (151.74, 69.8), (128.23, 66.98), (93.71, 60.53)),
    ),
    Series(
        "tab:privit_pretrain_ablate",
        "no pretraining",
        TINY_IMAGENET,
        VIT_TINY,
        RELU_OPS,
        ((234.18, 53.57), (194.78, 54.66), (167.20, 55.59), (153.31, 55.92)),
    ),
    Series(
        "fig:C100-softmax-candidatee",
        "UniformAttn",
        CIFAR100,
        UNSTATED,
        SOFTMAX,
        (
            (10000, 88.27),
            (5000, 86.28),
            (4000, 85.83),
            (3000, 85.19),
            (2000, 82.91),
            (750, 78.79),
            (500, 76.47),
            (300, 70.55),
            (150, 70.85),
        ),
    ),
    Series(
        "fig:C100-softmax-candidatee",
        "ScaleAttn",
        CIFAR100,
        UNSTATED,
        SOFTMAX,
        (
            (10000, 90.18),
            (5000, 88.77),
            (4000, 88.58),
            (3000, 88.49),
            (2000, 87.92),
            (1000, 87.31),
            (750, 84.98),
        ),
    ),
    Series(
        "fig:C100-softmax-candidatee",
        "SquaredAttn",
        CIFAR100,
        UNSTATED,
        SOFTMAX,
        ((10000, 90.05), (5000, 89.55), (4000, 89.14), (3000, 89.38), (2000, 89.48), (1000, 89.22)),
    ),
    Series(
        "tab:c10-manual_pruning",
        "layer-wise",
        CIFAR10,
        UNSTATED,
        GELU,
        (
            (197, 96.07),
            (196, 96.07),
            (193, 95.91),
            (190, 95.35),
            (187, 94.28),
            (184, 93.75),
            (181, 93.33),
            (178, 92.99),
            (174, 93.04),
            (171, 92.88),
            (164, 92.06),
            (123, 82.48),
            (0, 56.64),
        ),
    ),
    Series(
        "tab:c10-manual_pruning",
        "PriViT",
        CIFAR10,
        UNSTATED,
        GELU,
        ((200, 95.59), (150, 95.34), (100, 95.58), (50, 94.98), (10, 94.24), (1, 93.96)),
    ),
    Series("fig:GELU_plot", "GELU only", CIFAR100, UNSTATED, GELU, tuple((n, a) for n, a, _ in GELU_ONLY)),
    Series("fig:GELU_plot", "GELU only", CIFAR10, UNSTATED, GELU, tuple((n, a) for n, _, a in GELU_ONLY)),
)


def published(axis: str, label: str, data: str) -> tuple[list[Series], bool]:
    """The paper's series over one axis, and whether they are of this data set.

    They come from the table or figure called `label`, or, if that has none, from the paper's comparison
    of methods. If the paper has none of this data set, they are of CIFAR-10 or else of the first it has.
    """
    over = [series for series in SERIES if series.axis == axis]
    known = [series for series in over if series.label in label] if label else []
    known = known or [series for series in over if series.label in _COMPARISONS]
    own = data_set(data)
    for wanted in (own, CIFAR10, *(series.data for series in known)):
        found = [series for series in known if series.data == wanted]
        if found:
            return found, wanted == own
    return [], False


def data_set(name: str) -> str:
    """The data set's own name, from a path or a hub name; in the paper's spelling where it is the paper's."""
    last = name.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    return {"cifar-10": CIFAR10, "cifar-100": CIFAR100, "tinyimagenet": TINY_IMAGENET}.get(last, last)


def describe(series: Iterable[Series]) -> str:
    """Where series come from, for a caption."""
    found = list(series)
    labels = ", ".join(dict.fromkeys(entry.label for entry in found))
    models = "; ".join(f"{m}: {', '.join(names)}" for m, names in _by_model(found).items())
    notes = "; ".join(dict.fromkeys(entry.note for entry in found if entry.note))
    return f"{labels} ({found[0].data}; {models}{'; ' + notes if notes else ''})" if found else ""


def _by_model(series: Iterable[Series]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in series:
        found.setdefault(entry.model, []).append(entry.method)
    return found
