"""More of the paper's numbers: tables and figures that are not a line over a cost."""

from __future__ import annotations

from dataclasses import dataclass

# tab:perf degradation, Tiny-ImageNet: accuracy, ReLUOps in millions, maximum, mean (both in per cent)
# and variance of the accuracy lost per class. The column's heading gives the variance "10 x 10^-3".
DEGRADATION = (
    (69.8, 151.75, 30.0, 1.85, 6.8),
    (66.98, 128.23, 34.0, 4.68, 6.9),
    (64.46, 110.60, 34.0, 7.21, 8.0),
    (60.53, 93.72, 40.0, 11.13, 9.0),
    (59.55, 86.51, 34.0, 12.12, 9.4),
    (59.58, 84.78, 36.0, 12.08, 9.8),
    (59.04, 84.13, 36.0, 12.63, 9.9),
    (58.74, 69.42, 40.0, 12.92, 9.4),
    (58.2, 67.43, 36.0, 13.48, 8.7),
)

# tab:finetuning, CIFAR-100: thousands of softmaxes and of GELUs, accuracy of strategies 1 to 5.
STRATEGIES: tuple[tuple[float, float, tuple[float | None, ...]], ...] = (
    (10, 5, (77.68, 76.74, None, 77.82, 78.83)),
    (5, 5, (76.27, 75.99, 75.72, None, 77.63)),
    (5, 1, (76.73, 75.21, 76.24, None, 77.08)),
    (2, 10, (76.04, 75.23, None, 74.65, 76.35)),
    (2, 1, (75.92, 74.84, 76.45, None, 76.97)),
    (1, 5, (76.12, 74.99, 76.32, None, 76.96)),
)

# fig:grid_search_privit, CIFAR-100: rows are thousands of GELUs, columns softmaxes.
GRID_SOFTMAX = (150, 300, 500, 1000, 2000, 5000, 10000)
GRID = {
    1: (76.61, 76.38, 77.1, 75.94, 76.97, 77.08, 79.19),
    5: (76.34, 76.26, 76.88, 76.96, 76.53, 77.63, 78.83),
    10: (76.2, 76.42, 76.98, 75.74, 76.35, 77.86, 78.82),
    30: (75.2, 75.41, 75.68, 75.78, 76.57, 76.32, 78.15),
    50: (76.3, 76.34, 76.07, 77.04, 76.43, 77.17, 78.07),
    100: (76.8, 76.56, 77.02, 76.49, 77.3, 77.69, 79.0),
    150: (76.83, 77.09, 77.31, 77.75, 77.75, 78.25, 79.52),
    200: (77.14, 77.55, 77.98, 78.12, 78.06, 78.52, 79.39),
    300: (78.09, 78.11, 78.42, 79.15, 78.88, 80.12, 80.31),
}

# fig:GELU_plot: thousands of GELUs, accuracy on CIFAR-100 and on CIFAR-10; every softmax kept.
GELU_ONLY = (
    (2000, 87.52, 97.75),
    (1500, 86.74, 97.65),
    (1000, 84.77, 96.86),
    (500, 80.95, 96.48),
    (300, 79.55, 96.13),
    (200, 79.0, 95.92),
    (150, 79.26, 95.7),
    (100, 78.98, 95.92),
    (80, 78.71, 95.66),
    (50, 78.16, 95.48),
    (30, 77.79, 95.8),
    (20, 78.11, 95.6),
    (10, 78.38, 95.1),
    (5, 78.22, 94.4),
)


@dataclass(frozen=True)
class Distribution:
    """What one of the paper's models keeps in each of its 12 layers."""

    label: str
    name: str
    kind: str
    unit: str
    kept: tuple[int, ...]
    sites: int


DISTRIBUTIONS = (
    Distribution(
        "fig:C100-GELU_distribution",
        "GELU only, 150 K",
        "gelu",
        "scalars",
        (86478, 29776, 5458, 3203, 3410, 3470, 3116, 3072, 3071, 3072, 3060, 2356),
        605184,
    ),
    Distribution(
        "fig:C100-GELU_distribution",
        "GELU only, 500 K",
        "gelu",
        "scalars",
        (217343, 117813, 30806, 26262, 26557, 24021, 18375, 12174, 8149, 5614, 3072, 2875),
        605184,
    ),
    Distribution(
        "fig:C100-softmax_distribution",
        "softmax only, 1 K",
        "softmax",
        "rows",
        (201, 546, 171, 3, 2, 7, 10, 12, 12, 12, 12, 12),
        2364,
    ),
    Distribution(
        "fig:C100-softmax_distribution",
        "softmax only, 10 K",
        "softmax",
        "rows",
        (2364, 2310, 1630, 1801, 870, 469, 205, 102, 65, 20, 23, 12),
        2364,
    ),
    Distribution(
        "fig:ti_pretrain_ablate_GELU",
        "PriViT",
        "gelu",
        "tokens",
        (127, 1, 41, 6, 5, 6, 6, 4, 1, 1, 1, 1),
        197,
    ),
    Distribution(
        "fig:ti_pretrain_ablate_GELU",
        "no pretraining",
        "gelu",
        "tokens",
        (197, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
        197,
    ),
    Distribution(
        "fig:ti_pretrain_ablate_softmax",
        "PriViT",
        "softmax",
        "rows",
        (381, 393, 205, 0, 2, 0, 2, 3, 3, 3, 3, 3),
        591,
    ),
    Distribution(
        "fig:ti_pretrain_ablate_softmax",
        "no pretraining",
        "softmax",
        "rows",
        (591, 352, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3),
        591,
    ),
)
