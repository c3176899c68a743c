"""The teacher stage: what is selected, what is refused, and what a diverging run leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import MODEL, TEACHER

from privit.config import FinetuneConfig, TeacherConfig
from privit.errors import RequestError, TrainingDiverged
from privit.runs import load_run
from privit.train.loop.losses import distillation
from privit.train.loop.schedule import learning_rate_factor
from privit.train.teacher import train_teacher


def test_a_teacher_learns_and_its_run_says_how(teacher_run: Path) -> None:
    run = load_run(teacher_run, "teacher")
    result, records = run.result(), run.metrics()
    assert result is not None
    assert records[-1]["loss"] < records[0]["loss"]
    assert result["accuracy"] > 0.3
    assert result["validation_accuracy"] == max(record["validation_accuracy"] for record in records)
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    saved = json.loads((teacher_run / "config.json").read_text())
    assert saved["stage"] == "teacher"
    assert saved["inputs"] == {"model": MODEL, "data": "digits"}
    assert saved["config"]["seed"] == 0
    assert not (teacher_run / "checkpoint").exists()


def test_a_loss_that_explodes_names_the_epoch_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privit.train.loop import loop

    plain = loop.learning_rate_factor
    # From the third epoch on the step is so large that the loss must overflow.
    monkeypatch.setattr(loop, "learning_rate_factor", lambda c, at: 1e38 if at >= 2 else plain(c, at))
    with pytest.raises(TrainingDiverged, match=r"(?s)epoch 3 of teacher.*epoch 2 is kept"):
        train_teacher(MODEL, "digits", tmp_path / "run", TEACHER)
    assert json.loads((tmp_path / "run" / "checkpoint" / "latest.json").read_text())["epoch"] == 2
    monkeypatch.setattr(loop, "learning_rate_factor", plain)
    assert train_teacher(MODEL, "digits", tmp_path / "run", TEACHER)["epochs"] == 4


def test_unknown_data_or_model_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        train_teacher(MODEL, "no-such-data", tmp_path / "run", TEACHER)
    with pytest.raises(RequestError):
        train_teacher("timm:no_such_model", "digits", tmp_path / "run", TEACHER)
    with pytest.raises(RequestError, match="epochs is 0"):
        train_teacher(MODEL, "digits", tmp_path / "run", replace(TEACHER, epochs=0))
    assert not (tmp_path / "run").exists()


def test_learning_rates_follow_their_schedule() -> None:
    steps = TeacherConfig(epochs=90)
    assert [learning_rate_factor(steps, at) for at in (0, 29.9, 30, 60)] == pytest.approx([1, 1, 0.1, 0.01])
    cosine = FinetuneConfig(epochs=50)
    assert [learning_rate_factor(cosine, at) for at in (0, 25, 50)] == pytest.approx([1, 0.5, 0])
    warm = replace(cosine, warmup_epochs=10)
    assert learning_rate_factor(warm, 5) == pytest.approx(0.5, abs=1e-3)
    assert learning_rate_factor(warm, 10) == 1


def test_distillation_is_zero_for_equal_logits_and_grows_with_the_square_of_the_temperature() -> None:
    torch.manual_seed(0)
    ours, theirs = torch.randn(8, 5), torch.randn(8, 5)
    assert float(distillation(theirs, theirs, 4.0)) == pytest.approx(0, abs=1e-6)
    p, q = ((logits / 4).softmax(-1).double().numpy() for logits in (theirs, ours))
    by_hand = float((p * (np.log(p) - np.log(q))).sum() / len(p))
    assert float(distillation(ours, theirs, 4.0)) == pytest.approx(16 * by_hand, rel=1e-4)


def test_weights_of_a_named_architecture_get_a_head_for_the_data_wherever_they_lie(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    file = tmp_path / "downloaded.safetensors"
    save_file(timm.create_model("test_vit", num_classes=7).state_dict(), file)
    config = replace(TEACHER, epochs=1, train_limit=64, image_size=32, pretrained=True)
    train_teacher(f"timm:test_vit@{file}", "digits", tmp_path / "run", config)
    assert json.loads((tmp_path / "run" / "model.json").read_text())["spec"]["classes"] == 10
    # A file alone is somebody's trained model: its head is not thrown away unasked.
    file.rename(mine := tmp_path / "test_vit.safetensors")
    with pytest.raises(RequestError, match="head of 7 classes, but 10 are needed") as caught:
        train_teacher(str(mine), "digits", tmp_path / "other", config)
    assert "--set new_head=true" in caught.value.hint
    train_teacher(str(mine), "digits", tmp_path / "other", replace(config, new_head=True))
