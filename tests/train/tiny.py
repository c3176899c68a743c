"""The smallest line of runs that still trains: a two-layer ViT on a few digits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from privit.config import Descent, FinetuneConfig, SearchConfig, TeacherConfig
from privit.cost.budgets.budget import keep
from privit.train.teacher import train_teacher

MODEL = "vit:image_size=8,patch=4,width=16,depth=2,heads=2,channels=1"
GELU_SITES, SOFTMAX_SITES = 10, 20

TEACHER = TeacherConfig(
    epochs=4, batch_size=32, learning_rate=3e-3, schedule="cosine", pretrained=False, train_limit=256
)
SEARCH = SearchConfig(
    epochs=40,
    batch_size=32,
    learning_rate=1e-3,
    switch_learning_rate=2e-2,
    epsilon=0.2,
    penalty_warmup_epochs=1,
    budgets=(keep(0.2),),
    descents={"gelu": Descent(5e-3, 1.5, 0.1), "softmax": Descent(5e-3, 1.5, 0.1)},
)
FINETUNE = FinetuneConfig(epochs=3, batch_size=32, learning_rate=1e-3)


def tiny_teacher(folder: Path, **changes: Any) -> Path:
    """A finished teacher run."""
    train_teacher(MODEL, "digits", folder / "teacher", replace(TEACHER, **changes))
    return folder / "teacher"
