"""The one training loop of the three stages.

A stage says what is trained and what happens around a step and after an epoch; the loop does the rest:
batches, gradients, several processes (through accelerate), metrics, checkpoints and going on from them.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor

from privit.artifact import weights_hash
from privit.config import TrainConfig
from privit.errors import TrainingDiverged, WorkError
from privit.runs import Run
from privit.train.loop.batches import (
    Batch,
    Change,
    Images,
    Share,
    batch_size,
    count_correct,
    global_batches,
    parts_of,
    predicted,
    read_ahead,
    to_tensor,
)
from privit.train.loop.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from privit.train.loop.losses import classification, distillation
from privit.train.loop.optimize import make_optimizer, read_moments, set_learning_rate, write_moments
from privit.train.loop.processor import check_bfloat16
from privit.train.loop.progress import Report
from privit.train.loop.schedule import learning_rate_factor
from privit.train.student.vit import Student

NORM_CLIP = 1.0
"""Gradients are clipped to this while some LayerNorm is not exact: nothing else bounds the stream then."""


@dataclass
class Feed:
    """The images a stage trains and selects on; `augment` maps (batch, epoch, step, part) to a batch."""

    train: Images
    validation: Images
    augment: Change | None = None
    teacher: Teacher | None = None


class Stage:
    """What the loop asks of a stage; the plain stage trains the weights and keeps the best or the last."""

    name = "stage"
    loss_names: tuple[str, ...] = ("loss", "cross_entropy", "distillation")
    switch_learning_rate: float | None = None

    def __init__(self, student: Student, config: TrainConfig, select: str = "last"):
        self.student, self.config, self.select = student, config, select
        self.done = False
        self.best_accuracy = -1.0
        self.best_weights: dict[str, np.ndarray] = {}

    def losses(self, model: Any, batch: Batch, teacher: Teacher | None) -> Tensor:
        """What is minimised and its parts, under `loss_names`; `model` is the student, maybe wrapped."""
        logits = model(batch.images).float()
        entropy = classification(logits, batch.labels)
        divergence = torch.zeros((), device=logits.device)
        if teacher is not None:
            theirs = teacher.logits(batch).float()
            divergence = distillation(logits, theirs, teacher.temperature)
        return torch.stack([entropy + divergence, entropy, divergence])

    def before_step(self) -> None:
        """Gradients are there, the step is not yet made."""

    def after_step(self) -> None:
        """The step is made."""

    def start(self, loop: Loop) -> None:
        """Called once before the first epoch of a new run."""

    def end_epoch(self, loop: Loop, record: dict[str, Any]) -> bool:
        """Adds the stage's numbers to the epoch's record; true if what is trained has changed."""
        accuracy = loop.accuracy(self.student, loop.feed.validation)
        record["validation_accuracy"] = accuracy
        if self.select == "last" or accuracy >= self.best_accuracy:
            self.best_accuracy, self.best_weights = accuracy, self.student.weights()
        return False

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The stage's own numbers and arrays, for a checkpoint."""
        return {"done": self.done, "best_accuracy": self.best_accuracy}, dict(self.best_weights)

    def load_state(self, numbers: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Sets back what `state` gave, before the student's parameters are filled."""
        self.done, self.best_accuracy = numbers["done"], numbers["best_accuracy"]
        self.best_weights = arrays


@dataclass
class Teacher:
    """The teacher's logits: kept per training image, or computed per batch where images are augmented."""

    model: Student
    temperature: float
    kept: Tensor | None = field(default=None, repr=False)

    def logits(self, batch: Batch) -> Tensor:
        """What the teacher says of exactly the images the student sees."""
        if self.kept is not None:
            return self.kept[torch.from_numpy(batch.indices)].to(batch.images.device)
        with torch.no_grad():
            return self.model(batch.images)


class Loop:
    """A stage under way."""

    def __init__(self, stage: Stage, feed: Feed, run: Run, accelerator: Accelerator):
        self.stage, self.feed, self.run, self.accelerator = stage, feed, run, accelerator
        self.config = stage.config
        self.share = Share(accelerator.process_index, accelerator.num_processes)
        self.batch_size = batch_size(self.config, len(feed.train), self.share.processes)
        self.steps = len(feed.train) // self.batch_size
        self.epoch = 0
        stage.student.to(accelerator.device)
        if feed.teacher is not None:
            feed.teacher.model.to(accelerator.device)
            if feed.augment is None and feed.teacher.kept is None:
                feed.teacher.kept = self.predict(feed.teacher.model, feed.train)

    def go(self) -> None:
        """Trains to the end of the stage, from the latest checkpoint if there is one."""
        self._begin()
        with Report(
            self.stage.name, self.config.epochs, self.steps, self.accelerator.is_main_process
        ) as report:
            if self.epoch:
                report.line(f"{self.stage.name} goes on after epoch {self.epoch}")
            try:
                while self.epoch < self.config.epochs and not self.stage.done:
                    report.epoch(self._one_epoch(report))
            except KeyboardInterrupt:
                report.line(f"interrupted after epoch {self.epoch}; the same command goes on from there")
                raise

    def _begin(self) -> None:
        checkpoint = load_checkpoint(self.run, self.accelerator)
        if checkpoint is None:
            self.stage.start(self)
            self._prepare({})
        else:
            self.stage.load_state(checkpoint.numbers, checkpoint.part("stage"))
            with torch.no_grad():
                for name, parameter in self.stage.student.named_parameters():
                    parameter.copy_(torch.from_numpy(checkpoint.arrays[f"student/{name}"]))
            self.epoch = checkpoint.epoch
            self._prepare(checkpoint.part("optimizer"))
        if self.accelerator.is_main_process:
            self.run.keep_metrics(self.epoch)

    def _prepare(self, moments: dict[str, np.ndarray]) -> None:
        """Makes optimizer and wrappers anew for what is trained now, with the moments kept by name."""
        optimizer = make_optimizer(self.stage.student, self.config, self.stage.switch_learning_rate)
        write_moments(optimizer, moments)
        self.plain_optimizer = optimizer
        self.model, self.optimizer = self.accelerator.prepare(self.stage.student, optimizer)
        # Mixed precision is for steps alone: accuracies are of the weights as they will be served.
        self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)

    def _one_epoch(self, report: Report) -> dict[str, Any]:
        started = time.monotonic()
        self.model.train()
        sums = torch.zeros(self.steps, len(self.stage.loss_names))
        for step, parts in enumerate(self._batches()):
            sums[step] = self._step(step, parts)
            if not math.isfinite(float(sums[step, 0])) and self.share.processes == 1:
                break
            report.step(self.epoch, step + 1)
        losses = self.accelerator.reduce(sums.to(self.accelerator.device), reduction="mean").cpu()
        self._check_finite(losses)
        self.epoch += 1
        record: dict[str, Any] = {"epoch": self.epoch}
        record |= dict(zip(self.stage.loss_names, losses.mean(0).tolist(), strict=True))
        record["learning_rate"] = self.plain_optimizer.param_groups[0]["lr"]
        if self.config.log_steps:
            record["step_losses"] = losses[:, 0].tolist()
        changed = self.stage.end_epoch(self, record)
        record["seconds"] = time.monotonic() - started
        self._save(record)
        if changed:
            moments = read_moments(self.plain_optimizer)
            # It walks through all of Python's objects, so only where there is something to free.
            self.accelerator.free_memory()
            self._prepare(moments)
        return record

    def _check_finite(self, losses: Tensor) -> None:
        # The last step may have spoilt the weights after its own loss was taken.
        spoilt = [n for n, p in self.stage.student.named_parameters() if not bool(p.isfinite().all())]
        if spoilt or not bool(losses.isfinite().all()):
            what = "the loss" if not spoilt else f"weights ({spoilt[0]}, {len(spoilt)} in all) or the loss"
            raise TrainingDiverged(
                f"{what} became NaN or infinite in epoch {self.epoch + 1} of {self.stage.name}",
                f"the checkpoint of epoch {self.epoch} is kept; lower the learning rate or clip gradients",
            )

    def _batches(self) -> Iterator[list[Batch]]:
        """The batches of the epoch for this process, each in as many parts as gradients are accumulated."""
        order = global_batches(self.config.seed, self.epoch, len(self.feed.train), self.batch_size)
        count = self.config.accumulation
        parts = [part for batch in order for part in parts_of(batch, self.share, count)]
        waiting: list[Batch] = []
        for i, (part, images) in enumerate(
            zip(parts, read_ahead(self.feed.train, parts, self.config.workers), strict=True)
        ):
            device = self.accelerator.device
            labels = to_tensor(self.feed.train.labels[part], device)
            batch = Batch(to_tensor(images, device), labels, part)
            if self.feed.augment is not None:
                batch = self.feed.augment(batch, self.epoch, i // count, self.share.rank * count + i % count)
            waiting.append(batch)
            if len(waiting) == count:
                yield waiting
                waiting = []

    def _step(self, step: int, parts: list[Batch]) -> Tensor:
        set_learning_rate(self.optimizer, learning_rate_factor(self.config, self.epoch + step / self.steps))
        total = torch.zeros(len(self.stage.loss_names))
        for i, batch in enumerate(parts):
            last = i == len(parts) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(self.model):
                with self.accelerator.autocast():
                    losses = self.stage.losses(self.model, batch, self.feed.teacher)
                self.accelerator.backward(losses[0] / len(parts))
            total += losses.detach().cpu() / len(parts)
        self.accelerator.unscale_gradients()
        clip = self.config.gradient_clip
        if clip is None and not self.stage.student.plain_norms:
            clip = NORM_CLIP
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(self.plain_optimizer.param_groups[0]["params"], clip)
        self.stage.before_step()
        self.optimizer.step()
        self.stage.after_step()
        self.optimizer.zero_grad()
        return total

    def _save(self, record: dict[str, Any]) -> None:
        self._check_ranks_agree(record)
        numbers, arrays = self.stage.state()
        student = {
            f"student/{n}": p.detach().cpu().numpy().copy() for n, p in self.stage.student.named_parameters()
        }
        moments = {f"optimizer/{n}": a for n, a in read_moments(self.plain_optimizer).items()}
        own = {f"stage/{n}": a for n, a in arrays.items()}
        if self.accelerator.is_main_process:
            self.run.add_metrics(record)
        save_checkpoint(self.run, Checkpoint(self.epoch, numbers, student | moments | own), self.accelerator)

    def _check_ranks_agree(self, record: dict[str, Any]) -> None:
        if self.share.processes == 1:
            return
        student = self.stage.student
        now = {name: parameter.detach().cpu().numpy() for name, parameter in student.named_parameters()}
        digest = bytes.fromhex(weights_hash(now, student.plan().hash()))
        mine = torch.tensor(list(digest), device=self.accelerator.device)
        everyone = self.accelerator.gather(mine).view(self.share.processes, -1)
        record["ranks"] = ["".join(f"{byte:02x}" for byte in row) for row in everyone.tolist()]
        if len(set(record["ranks"])) > 1:
            raise WorkError(
                f"the processes disagree about weights or switches after epoch {self.epoch}",
                "start the same command again; if it comes back, use one process",
            )

    def predict(self, model: Student, images: Images) -> Tensor:
        """Logits of every image, on the CPU."""
        return torch.cat([logits for _, logits in predicted(model, images, self.accelerator.device)])

    def accuracy(self, model: Student, images: Images) -> float:
        """The share of images that are classified rightly; the processes share the work."""
        device = self.accelerator.device
        hits = count_correct(model, images, device, self.share).to(device)
        return float(self.accelerator.reduce(hits, reduction="sum")) / len(images)


def make_accelerator(config: TrainConfig) -> Accelerator:
    """The accelerator for a stage; a stage before it in this process may have had other settings."""
    AcceleratorState._reset_state(reset_partial_state=False)
    torch.manual_seed(config.seed)
    # Said outright, or the processes of a machine without GPUs would start as strangers to each other.
    cpu = not torch.accelerator.is_available()
    if cpu and config.mixed_precision == "bf16":
        check_bfloat16()
    return Accelerator(cpu=cpu, mixed_precision=config.mixed_precision)
