"""Every total that the paper prints, set against what its own constants and counts give.

The paper: PriViT, Dhyani et al. 2023. "Printed" values are ReLUOps in millions. A total is computable
where it is known how many operators are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privit.cost.estimate import estimate
from privit.operators import operator
from privit.plan import Plan, plan_from_counts, plan_from_ids, uniform_plan
from privit.spec import Granularity, Spec, sites, vit_spec

VIT_TINY = vit_spec(image_size=224, patch_size=16, width=192, depth=12, heads=3, classes=200)
VIT_BASE = vit_spec(image_size=224, patch_size=16, width=768, depth=12, heads=12, classes=100)
# Table "Base model architecture of PriViT and MPCViT".
MPCVIT_CIFAR = vit_spec(image_size=32, patch_size=4, width=256, depth=7, heads=4, classes=100, mlp_width=512)
MPCVIT_TINY_IMAGENET = vit_spec(
    image_size=64, patch_size=4, width=192, depth=9, heads=12, classes=200, mlp_width=384
)

# Figures of the appendix "Effect of using pre-trained checkpoints": kept per layer.
TINY_IMAGENET_GELU_TOKENS = [127, 1, 41, 6, 5, 6, 6, 4, 1, 1, 1, 1]
TINY_IMAGENET_SOFTMAX_ROWS = [381, 393, 205, 0, 2, 0, 2, 3, 3, 3, 3, 3]
SCRATCH_GELU_TOKENS = [197, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
SCRATCH_SOFTMAX_ROWS = [591, 352, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]


def mpcvit_plan(spec: Spec, heads_kept: int) -> Plan:
    """MPCViT's network: ReLU-softmax in the first `heads_kept` heads, ScaleAttn in the others.

    Which heads they are does not change the cost.
    """
    granularity = Granularity(softmax="head")
    shapes = sites(spec, granularity)["softmax"]
    kept, scaled = operator("relu_softmax").id, operator("scale_attn").id
    sizes = [int(np.prod(shape)) for shape in shapes]
    ids = np.full(sum(sizes), scaled)
    ids[:heads_kept] = kept
    heads = [part.reshape(s) for part, s in zip(np.split(ids, np.cumsum(sizes)[:-1]), shapes, strict=True)]
    gelu = uniform_plan(spec, granularity=granularity).layers["gelu"]
    return plan_from_ids(granularity, {"gelu": list(gelu), "softmax": heads})


@dataclass(frozen=True)
class Total:
    """One printed total, and the plan that its counts describe."""

    where: str
    printed: float
    spec: Spec
    plan: Plan
    profile: str = "paper"

    @property
    def computed(self) -> float:
        """Millions of ReLUOps from the published constants."""
        return estimate(self.spec, self.plan, self.profile).total / 1e6

    @property
    def difference(self) -> float:
        """Computed less printed, in millions."""
        return self.computed - self.printed


def computable_totals() -> list[Total]:
    """Every printed total whose counts are stated."""
    tiny = plan_from_counts(VIT_TINY, TINY_IMAGENET_GELU_TOKENS, TINY_IMAGENET_SOFTMAX_ROWS)
    totals = [
        Total("PriViT-G on Tiny-ImageNet, 200 GELU tokens and 998 softmax rows", 110.60, VIT_TINY, tiny)
    ]
    # The paper does not print how many heads MPCViT keeps; these are the only numbers that give its
    # totals: 0.7, 0.5, 0.3, 0.1 of 28 heads and 0.9, 0.5, 0.3, 0.1 of 108, rounded up.
    for where, spec, rows in (
        ("MPCViT on CIFAR-10/100", MPCVIT_CIFAR, {20: 72.21, 14: 71.77, 9: 71.40, 3: 70.96}),
        ("MPCViT on Tiny-ImageNet", MPCVIT_TINY_IMAGENET, {98: 381.42, 54: 331.35, 33: 307.45, 11: 282.42}),
    ):
        totals += [
            Total(f"{where}, {heads} heads with ReLU-softmax", printed, spec, mpcvit_plan(spec, heads))
            for heads, printed in rows.items()
        ]
    return totals


@dataclass(frozen=True)
class Unstated:
    """Printed totals that cannot be computed, and why."""

    where: str
    printed: tuple[float, ...]
    reason: str


_NO_COUNTS = "how many GELUs and softmaxes each model keeps is not stated"

UNSTATED: tuple[Unstated, ...] = (
    Unstated(
        "PriViT-G on Tiny-ImageNet, the other budgets",
        (271.59, 151.75, 128.23, 93.72, 86.51, 84.78, 84.13, 69.42, 67.43),
        _NO_COUNTS + "; two of them are printed as 151.74 and 93.71 in another table",
    ),
    Unstated("PriViT-R on Tiny-ImageNet", (69.11, 67.08, 69.28, 82.77), _NO_COUNTS),
    Unstated("PriViT without distillation", (179.95, 158.59, 131.22, 105.09, 85.39), _NO_COUNTS),
    Unstated(
        "PriViT without pretraining",
        (234.18, 194.78, 167.20, 153.31),
        _NO_COUNTS + "; the one model whose counts are drawn (208 tokens, 973 rows) has no printed total",
    ),
    Unstated("PriViT-G on CIFAR-100", (147.61, 131.27, 116.67, 106.32, 88.24, 75.92, 67.54), _NO_COUNTS),
    Unstated(
        "PriViT-R on CIFAR-100",
        (65.18, 49.25, 34.60, 33.95, 33.58),
        _NO_COUNTS + "; the last four lie below LayerNorm plus x^2 alone, so they leave the x^2 out",
    ),
    Unstated("PriViT-G on CIFAR-10", (109.24, 95.64, 84.16, 59.62), _NO_COUNTS),
    Unstated("PriViT-R on CIFAR-10", (82.75, 82.61, 81.68, 59.40), _NO_COUNTS),
    Unstated(
        "MPCViT+ on CIFAR-100 and CIFAR-10",
        (58.10, 58.54, 58.91, 63.36, 61.43, 54.24, 53.80, 52.99),
        "MPCViT+ also removes GELUs, and how many is not stated",
    ),
    Unstated(
        "the latency pie of ViT-Tiny", (), "the figure is an image whose shares are not given in the text"
    ),
    Unstated(
        "seconds on SEMI2K",
        (),
        "measured on the authors' machines, online phase only; not a sum of constants",
    ),
    Unstated(
        "the seven constants themselves",
        (18586, 6504, 8614, 270, 3248, 4428, 1133),
        "the AND count of the ReLU they are divided by, and of share recovery, is not stated",
    ),
)


def square_floor(spec: Spec = VIT_TINY, profile: str = "paper") -> float:
    """Millions of ReLUOps with every GELU and softmax replaced: no PriViT of this backbone costs less."""
    plan = uniform_plan(spec, gelu="identity", softmax="squared_attn")
    return estimate(spec, plan, profile).total / 1e6
