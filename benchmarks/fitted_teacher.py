"""The teacher of the two fitted benchmarks: DeiT-Tiny at 112 px on 8,000 CIFAR-10 training images.

python benchmarks/fitted_teacher.py              trains it, or goes on; prints its result
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from privit.config import TeacherConfig
from privit.runs import load_run
from privit.train.teacher import train_teacher

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
RUNS = ROOT / "runs" / "fitted"
TEACHER = RUNS / "teacher"
THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))


def teacher_config() -> TeacherConfig:
    """How the teacher is fine-tuned from ImageNet weights."""
    return TeacherConfig(
        epochs=4,
        batch_size=64,
        learning_rate=1e-4,
        schedule="cosine",
        image_size=112,
        new_head=True,
        train_limit=8000,
        augmentation={"flip": 0.5},
        select="last",
    )


def teacher() -> dict[str, Any]:
    """The result of the teacher's run, trained first if it is not finished."""
    torch.set_num_threads(THREADS)
    if (TEACHER / "result.json").is_file():
        return load_run(TEACHER, "teacher").result() or {}
    model = f"timm:deit_tiny_patch16_224@{SHARED / 'deit_tiny_patch16_224.safetensors'}"
    return train_teacher(model, str(SHARED / "cifar10"), TEACHER, teacher_config())


def main() -> None:
    """Prints the teacher's result as JSON."""
    print(json.dumps(teacher(), indent=2))


if __name__ == "__main__":
    main()
