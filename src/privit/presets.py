"""Named settings: the best known way, the paper's, the demo's, and the strategies of the paper's appendix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from privit.config import Descent, FinetuneConfig, SearchConfig, TeacherConfig
from privit.cost.budgets.budget import Budget
from privit.errors import RequestError
from privit.operators import FITTED
from privit.spec import KINDS, PAPER_KINDS


@dataclass(frozen=True)
class Preset:
    """Settings for the three stages that belong together."""

    teacher: TeacherConfig
    search: SearchConfig
    finetune: FinetuneConfig


# Hassani et al. 2021, whose settings the appendix "Hyperparameter Tuning" of the paper names.
PAPER_AUGMENTATION = {
    "mixup": 0.8,
    "cutmix": 1.0,
    "label_smoothing": 0.1,
    "rand_augment": "rand-m9-mstd0.5-inc1",
    "random_erasing": 0.25,
}

# Section 4.1 of the paper.
PAPER = Preset(
    TeacherConfig(augmentation=PAPER_AUGMENTATION),
    SearchConfig(augmentation=PAPER_AUGMENTATION),
    FinetuneConfig(augmentation=PAPER_AUGMENTATION),
)

DIGITS_MODEL = "vit:image_size=8,patch=2,width=64,depth=4,heads=2,channels=1"
"""The demo's model: 17 tokens, small enough to train and to run privately in minutes."""

DIGITS = Preset(
    TeacherConfig(
        epochs=40,
        learning_rate=1e-3,
        schedule="cosine",
        warmup_epochs=2,
        weight_decay=0.05,
        gradient_clip=1.0,
        input_noise=0.4,
        pretrained=False,
        select="last",
    ),
    SearchConfig(
        epochs=80,
        learning_rate=5e-4,
        switch_learning_rate=1e-2,
        epsilon=0.1,
        penalty_warmup_epochs=0,
        gradient_clip=1.0,
        descents={
            "gelu": Descent(penalty=1e-3, growth=1.2, min_drop=0.05),
            "softmax": Descent(penalty=1e-3, growth=1.2, min_drop=0.05),
        },
    ),
    FinetuneConfig(
        epochs=15, learning_rate=1e-3, weight_decay=0.01, warmup_epochs=1, gradient_clip=1.0, select="last"
    ),
)

PLAIN = Preset(TeacherConfig(), SearchConfig(), FinetuneConfig())
"""The paper's settings for images as they are."""

BEST = "best"
"""The name of the best known way, whose settings depend on how many images there are."""
TEACHER_IMAGES, FRESH_IMAGES, FINETUNE_IMAGES = 32_000, 52_000, 24_000
"""Images that a stage sees in all its epochs: a pretrained teacher's, a fresh one's, a fine-tuning's."""
FEW_IMAGES = 5_000
"""Up to so many a fresh teacher would learn by heart without noise on its input."""
OPERATOR_RATE = 0.1
MOST_REUSED = 3
"""LayerNorms in a row that may reuse a factor: with eleven, twelve blocks diverged (docs/fitted.md)."""
NORM_SHARE = 0.4
"""LayerNorms that stay exact under a budget in sites, which says nothing of them: ten of DeiT-Tiny's 25."""


BEST_SEARCH = SearchConfig(
    kinds=KINDS,
    stand_in=dict(FITTED),
    budgets=(Budget(dict.fromkeys(PAPER_KINDS, 0.1) | {"norm": NORM_SHARE}),),
)
"""What is chosen without training: stand-ins that are fitted, at every kind of site."""


def best_teacher(images: int, fresh: bool, photographs: bool) -> TeacherConfig:
    """How a teacher is trained on so many images, from random weights or from pretrained ones."""
    augmentation = {"flip": 0.5} if photographs else {}
    if not fresh:
        return TeacherConfig(
            epochs=_epochs(TEACHER_IMAGES, images, 2, 20),
            schedule="cosine",
            augmentation=augmentation,
            select="last",
        )
    return replace(
        DIGITS.teacher,
        epochs=_epochs(FRESH_IMAGES, images, 20, 200),
        input_noise=DIGITS.teacher.input_noise if images <= FEW_IMAGES else 0.0,
        augmentation=augmentation,
    )


def best_finetune(images: int, teacher_rate: float) -> FinetuneConfig:
    """How a student with fitted stand-ins is trained on, whose teacher had that learning rate.

    A student starts next to its teacher and its polynomials square every mistake, so that half the teacher's
    rate, a tenth of that for operators, and clipped gradients are what twelve blocks with reused LayerNorms
    bear. Images are used as they are: then the teacher's answers are computed once, and not in every epoch.
    """
    return FinetuneConfig(
        epochs=_epochs(FINETUNE_IMAGES, images, 2, 60),
        learning_rate=teacher_rate / 2,
        gradient_clip=1.0,
        operator_rate=OPERATOR_RATE,
        select="last",
    )


def _epochs(seen: int, images: int, least: int, most: int) -> int:
    return min(max(round(seen / max(images, 1)), least), most)


PRESETS = {"paper": PAPER, "plain": PLAIN, "digits": DIGITS}


def preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise RequestError(f"no preset is called {name!r}", f"known: {', '.join((BEST, *PRESETS))}")
    return PRESETS[name]


def with_strategy(base: Preset, number: int) -> Preset:
    """One of the five strategies of the appendix "Hyperparameter Tuning", laid over a preset.

    1: late binarization, penalties grow when a count falls by less than 2 GELUs / 200 softmaxes.
    2: late, they grow only when a count rises. 3: as 2, softmax's penalty starts 20 times higher.
    4: as 2, but each kind is binarized as it is frozen. 5: as 1, early, and 50 epochs of fine-tuning.
    """
    if number not in range(1, 6):
        raise RequestError(f"there is no strategy {number}", "the paper has strategies 1 to 5")
    drops = {"gelu": 2, "softmax": 200} if number in (1, 5) else {"gelu": 0, "softmax": 0}
    start = base.search.descents["gelu"].penalty
    penalties = {"gelu": start, "softmax": 20 * start if number == 3 else start}
    descents = {
        kind: replace(descent, penalty=penalties[kind], min_drop=drops[kind]) if kind in drops else descent
        for kind, descent in base.search.descents.items()
    }
    when: Literal["early", "late"] = "early" if number in (4, 5) else "late"
    search = replace(base.search, descents=descents, binarize_when=when)
    return replace(base, search=search, finetune=replace(base.finetune, epochs=50 if number == 5 else 10))
