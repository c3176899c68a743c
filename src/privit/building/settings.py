"""The best known way's settings for a model and its data, or for a run."""

from __future__ import annotations

import os
from pathlib import Path

from privit.config import FinetuneConfig, TeacherConfig
from privit.data.datasets import Data, load_data
from privit.presets import best_finetune, best_teacher
from privit.runs import load_run


def teacher_settings(
    model: str, data: str, train_limit: int | None = None, scratch: bool = False
) -> TeacherConfig:
    """How a teacher is trained on data of that name."""
    return teacher_for(model, load_data(data, train_limit=train_limit), scratch)


def teacher_for(model: str, data: Data, scratch: bool = False) -> TeacherConfig:
    """How a teacher is trained on data that are loaded: colour pictures are taken for photographs."""
    photographs = data.train.image(0).mode == "RGB"
    return best_teacher(len(data.train), scratch or model.startswith("vit:"), photographs)


def finetune_settings(run: Path) -> FinetuneConfig:
    """How the student of a search (or of a matching) is trained on, by its teacher's data and settings."""
    from privit.train.stages import read_model

    source = load_run(run, "search", "matching")
    folder = Path(os.path.normpath(source.folder / source.description["notes"]["teacher"]))
    teacher = load_run(folder, "teacher")
    rate = float(teacher.description["config"]["learning_rate"])
    return best_finetune(len(read_model(teacher).subject.load().train), rate)
