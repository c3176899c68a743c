"""Mixed precision on a processor that announces more than it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from privit.errors import RequestError
from privit.train.loop import processor

TRAIN = """
import torch
from privit.config import TrainConfig
from privit.errors import RequestError
from privit.train.loop.loop import make_accelerator
try:
    make_accelerator(TrainConfig(mixed_precision="bf16"))
except RequestError as error:
    print(error)
else:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.nn.Linear(32, 32)(torch.ones(4, 8, 32))
    print("trained")
"""


def test_mixed_precision_trains_or_is_refused_in_words_but_never_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    ended = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "trained\n" or "hint: set ONEDNN_MAX_CPU_ISA=" in ended.stdout


def test_a_trial_that_is_ended_by_a_signal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    processor._code_of_a_trial.cache_clear()
    try:
        with pytest.raises(RequestError, match="announces instructions it does not run"):
            processor.check_bfloat16()
    finally:
        processor._code_of_a_trial.cache_clear()
