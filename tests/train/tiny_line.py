"""Teacher, search and fine-tune of the tiny line, as a program of its own that a test can kill or launch.

python tiny_line.py FOLDER STAGE...
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from tiny import FINETUNE, MODEL, SEARCH, TEACHER

from privit.train.finetune import finetune
from privit.train.search import search
from privit.train.teacher import train_teacher

LONG_TEACHER = replace(TEACHER, epochs=8)
LONG_FINETUNE = replace(FINETUNE, epochs=8)
LOGGED_SEARCH = replace(SEARCH, log_steps=True)


def main(folder: Path, stages: list[str]) -> None:
    """Runs the stages; finished ones are read, interrupted ones go on."""
    torch.set_num_threads(1)
    if "teacher" in stages:
        train_teacher(MODEL, "digits", folder / "teacher", LONG_TEACHER)
    if "search" in stages:
        search(folder / "teacher", folder / "search", LOGGED_SEARCH)
    if "finetune" in stages:
        finetune(folder / "search", folder / "finetune", LONG_FINETUNE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
