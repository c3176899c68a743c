"""Batches, accumulation, checkpoints of other runs, augmentation and memory limits."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import MODEL, TEACHER
from torch import Tensor

from privit.errors import RequestError, WorkError
from privit.runs import load_run, read_arrays
from privit.train.loop.batches import Batch, Share, batch_size, global_batches, parts_of
from privit.train.loop.checkpoint import random_states, set_random_states
from privit.train.loop.loop import Loop, Stage, make_accelerator
from privit.train.stages import make_feed, read_model, start_run
from privit.train.student.vit import Student
from privit.train.teacher import train_teacher


def test_processes_divide_the_same_global_batches_among_them() -> None:
    batches = global_batches(seed=3, epoch=1, images=103, size=20)
    assert batches.shape == (5, 20)
    assert len(np.unique(batches)) == 100
    shares = [parts_of(batches[0], Share(rank, 2), 2) for rank in (0, 1)]
    together = np.concatenate([part for share in shares for part in share])
    assert np.array_equal(together, batches[0])
    assert not np.array_equal(batches, global_batches(seed=3, epoch=2, images=103, size=20))
    assert np.array_equal(batches, global_batches(seed=3, epoch=1, images=103, size=20))


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(RequestError, match="32 does not divide into 3 processes"):
        batch_size(TEACHER, 1000, 3)
    assert batch_size(TEACHER, 20, 2) == 20


def test_accumulated_gradients_give_the_losses_of_whole_batches(tmp_path: Path) -> None:
    config = replace(TEACHER, epochs=1, log_steps=True)
    train_teacher(MODEL, "digits", tmp_path / "whole", config)
    train_teacher(MODEL, "digits", tmp_path / "parts", replace(config, accumulation=4))
    whole, parts = (load_run(tmp_path / n).metrics()[0]["step_losses"] for n in ("whole", "parts"))
    assert whole == pytest.approx(parts, abs=1e-4)


def test_mixed_precision_trains_and_keeps_its_weights_in_single_precision(tmp_path: Path) -> None:
    config = replace(TEACHER, epochs=1, train_limit=64, log_steps=True)
    train_teacher(MODEL, "digits", tmp_path / "single", config)
    train_teacher(MODEL, "digits", tmp_path / "mixed", replace(config, mixed_precision="bf16"))
    single, mixed = (load_run(tmp_path / n).metrics()[0]["step_losses"] for n in ("single", "mixed"))
    # bf16 has 8 bits: close to single precision, and not the same.
    assert mixed == pytest.approx(single, rel=0.05)
    assert mixed != single
    weights = read_arrays(tmp_path / "mixed" / "weights.safetensors")
    assert {str(value.dtype) for value in weights.values()} == {"float32"}
    assert all(np.isfinite(value).all() for value in weights.values())


def test_mixed_precision_is_for_steps_and_not_for_accuracies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[bool, bool]] = set()
    forward = Student.forward

    def watched(self: Student, *arguments: Any) -> Tensor:
        seen.add((self.training, torch.is_autocast_enabled("cpu")))
        return forward(self, *arguments)

    monkeypatch.setattr(Student, "forward", watched)
    config = replace(TEACHER, epochs=1, train_limit=64, mixed_precision="bf16")
    train_teacher(MODEL, "digits", tmp_path / "mixed", config)
    assert {autocast for training, autocast in seen if training} == {True}
    assert {autocast for training, autocast in seen if not training} == {False}


def test_images_made_on_demand_by_workers_train_the_same_weights(tmp_path: Path) -> None:
    config = replace(TEACHER, epochs=1)
    train_teacher(MODEL, "digits", tmp_path / "kept", config)
    train_teacher(MODEL, "digits", tmp_path / "read", replace(config, memory_bytes=1, workers=2))
    kept, read = (read_arrays(tmp_path / n / "weights.safetensors") for n in ("kept", "read"))
    assert all(np.array_equal(kept[name], read[name]) for name in kept)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stop_after_one_epoch(tmp_path / "run", monkeypatch)
    latest = tmp_path / "run" / "checkpoint" / "latest.json"
    data = json.loads(latest.read_text())
    latest.write_text(json.dumps(data | {"run": "0" * 64}))
    with pytest.raises(RequestError, match="checkpoint of another run"):
        train_teacher(MODEL, "digits", tmp_path / "run", TEACHER)


def test_a_full_disk_stops_with_an_error_and_the_run_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop_after_one_epoch(tmp_path / "run", monkeypatch)
    partial = tmp_path / "run" / "checkpoint" / "epoch-2"
    # A file where a folder must come stands for a disk that takes no more.
    partial.write_text("")
    with pytest.raises(WorkError, match="cannot write to"):
        train_teacher(MODEL, "digits", tmp_path / "run", TEACHER)
    partial.unlink()
    assert train_teacher(MODEL, "digits", tmp_path / "run", TEACHER)["epochs"] == TEACHER.epochs


def test_an_interrupt_passes_through_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stop_after_one_epoch(tmp_path / "run", monkeypatch)
    captured = capsys.readouterr()
    assert "interrupted after epoch 1; the same command goes on from there" in captured.err
    assert captured.out == ""
    train_teacher(MODEL, "digits", tmp_path / "run", TEACHER)
    assert "goes on after epoch 1" in capsys.readouterr().err


def test_random_states_come_back_as_they_were() -> None:
    random.gauss(0, 1)
    np.random.standard_normal()
    states = random_states()
    first = (random.gauss(0, 1), np.random.standard_normal(), float(torch.rand(1)))
    set_random_states(states)
    assert first == (random.gauss(0, 1), np.random.standard_normal(), float(torch.rand(1)))


class Watched(Stage):
    """A stage that keeps the labels it was trained on."""

    name = "watched"

    def losses(self, model: Any, batch: Batch, teacher: Any) -> torch.Tensor:
        self.seen = [*getattr(self, "seen", []), batch.labels]
        return super().losses(model, batch, teacher)


def labels_seen(teacher_run: Path, folder: Path, augmentation: dict[str, Any]) -> torch.Tensor:
    """The labels of one epoch's batches, in the order of training."""
    config = replace(TEACHER, epochs=1, augmentation=augmentation)
    model = read_model(load_run(teacher_run))
    accelerator = make_accelerator(config)
    run = start_run(folder, "teacher", config, {}, accelerator)
    stage = Watched(model.student(), config)
    Loop(stage, make_feed(model.subject.load(), model.subject, config), run, accelerator).go()
    return torch.cat(stage.seen)


def test_augmented_training_learns_from_mixed_labels(teacher_run: Path, tmp_path: Path) -> None:
    plain = labels_seen(teacher_run, tmp_path / "plain", {})
    mixed = labels_seen(teacher_run, tmp_path / "mixed", {"mixup": 0.8})
    assert not plain.is_floating_point()
    assert mixed.shape == (len(plain), 10)
    assert torch.allclose(mixed.sum(-1), torch.ones(len(plain)))
    # The image's own class keeps a share, and most images have a share of another one, too.
    assert (mixed.gather(1, plain[:, None]) > 0).all()
    assert ((mixed > 0).sum(-1) == 2).float().mean() > 0.5


def _stop_after_one_epoch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privit.train.loop.progress import Report

    def interrupt(self: Report, record: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Report, "epoch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_teacher(MODEL, "digits", folder, TEACHER)
