"""What the three stages share: the model a run holds, its data, and how a run ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from privit.artifact import Preprocessing, weights_hash
from privit.config import TrainConfig, to_json
from privit.data.datasets import Data, load_data
from privit.plan import Plan, load_plan, save_plan, uniform_plan
from privit.runs import Run, open_run, read_arrays, read_json, write_arrays, write_text, writing
from privit.spec import KINDS, Spec, with_tokens
from privit.train.loop.batches import Images
from privit.train.loop.checkpoint import drop_checkpoint
from privit.train.loop.loop import Feed, Loop, Teacher
from privit.train.student.vit import Student


@dataclass(frozen=True)
class Subject:
    """What every stage of a line of runs agrees on: the model's shape, its input and its data."""

    spec: Spec
    preprocessing: Preprocessing
    class_names: tuple[str, ...]
    data: dict[str, Any]

    def load(self) -> Data:
        """The data set, split as for the teacher."""
        return load_data(**self.data)


@dataclass(frozen=True)
class Model:
    """What a finished run holds."""

    subject: Subject
    plan: Plan
    weights: dict[str, np.ndarray] = field(repr=False)

    def with_tokens(self, tokens: Sequence[int]) -> Model:
        """The untouched model with so many tokens in each block; the same if none are given.

        Its weights lack the pools' matrices, which then average neighbours.
        """
        if not tokens:
            return self
        spec = with_tokens(self.subject.spec, tokens)
        return Model(replace(self.subject, spec=spec), uniform_plan(spec), self.weights)

    def student(self) -> Student:
        """The model as a student that runs by its plan."""
        return planned_student(self.subject.spec, self.plan, self.weights)


def planned_student(spec: Spec, plan: Plan, weights: Mapping[str, np.ndarray]) -> Student:
    """A student that runs by `plan`; operator parameters that the weights lack get their initial values."""
    student = Student(spec, plan.granularity)
    # The plan comes first: it decides which operators' parameters there are to fill.
    student.set_plan(plan)
    student.load_weights(weights)
    return student


def write_model(folder: Path, subject: Subject, plan: Plan, weights: Mapping[str, np.ndarray]) -> None:
    """Writes model.json, plan.safetensors and weights.safetensors."""
    data = {
        "spec": subject.spec.to_json(),
        "preprocessing": asdict(subject.preprocessing),
        "class_names": list(subject.class_names),
        "data": subject.data,
    }
    write_text(folder / "model.json", json.dumps(data, indent=2) + "\n")
    write_cut(folder, plan, weights)


def write_cut(folder: Path, plan: Plan, weights: Mapping[str, np.ndarray]) -> None:
    """Writes a plan and the weights that go with it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_plan(plan, folder / "plan.safetensors")
    write_arrays(folder / "weights.safetensors", weights)


def read_model(run: Run, cut: Path | None = None) -> Model:
    """The model of a finished run, or of one of its cuts."""
    data = read_json(run.folder / "model.json")
    preprocessing = dict(data["preprocessing"])
    preprocessing |= {"mean": tuple(preprocessing["mean"]), "std": tuple(preprocessing["std"])}
    subject = Subject(
        Spec.from_json(data["spec"]),
        Preprocessing(**preprocessing),
        tuple(data["class_names"]),
        data["data"],
    )
    folder = cut or run.folder
    return Model(subject, load_plan(folder / "plan.safetensors"), read_arrays(folder / "weights.safetensors"))


def model_hash(model: Model) -> str:
    """sha256 over the plan and the weights, by which a later run knows what it was made from."""
    return weights_hash(model.weights, model.plan.hash())


def teacher_of(model: Model, config: Any) -> Teacher | None:
    """The teacher to learn from, or None where distillation is off."""
    if not config.distill:
        return None
    student = model.student()
    student.eval().requires_grad_(False)
    return Teacher(student, config.temperature)


def make_feed(data: Data, subject: Subject, config: TrainConfig, teacher: Teacher | None = None) -> Feed:
    """The images of a stage, and how they are augmented."""
    train = Images(data.train, subject.preprocessing, config.memory_bytes)
    validation = Images(data.validation, subject.preprocessing, config.memory_bytes)
    augment = None
    if config.augmentation:
        # timm takes seconds to import, and most runs here do without.
        from privit.train.loop.augment import Augmentation, make_augmentation

        settings = Augmentation(**config.augmentation)
        augment = make_augmentation(settings, subject.spec, subject.preprocessing, config.seed)
    return Feed(train, validation, augment, teacher)


def exact_plan(spec: Spec) -> Plan:
    """The untouched model's plan."""
    return uniform_plan(spec)


def describe_plan(plan: Plan) -> dict[str, Any]:
    """What of a plan goes into result.json."""
    described: dict[str, Any] = {f"kept_{kind}": sum(plan.kept(kind)) for kind in KINDS}
    described["sites"] = {kind: plan.total(kind) for kind in KINDS}
    described["kept"] = {kind: plan.kept(kind) for kind in KINDS}
    described["granularity"] = vars(plan.granularity).copy()
    described["plan"] = plan.hash()
    return described


def accuracy_on_test(loop: Loop, student: Student, subject: Subject, data: Data) -> float:
    """Accuracy on the test set: measured once, when nothing is left to choose."""
    images = Images(data.test, subject.preprocessing, loop.config.memory_bytes)
    return loop.accuracy(student.to(loop.accelerator.device), images)


def close_run(run: Run, result: dict[str, Any], accelerator: Accelerator) -> dict[str, Any]:
    """Writes the result and drops the checkpoint; every process gets the result."""
    records = run.metrics()
    result = {"stage": run.stage} | result
    result["epochs"] = len(records)
    result["seconds"] = round(sum(record["seconds"] for record in records), 3)
    if accelerator.is_main_process:
        run.finish(result)
        drop_checkpoint(run.folder)
    accelerator.wait_for_everyone()
    return result


def start_run(
    folder: Path,
    stage: str,
    config: TrainConfig,
    inputs: Mapping[str, Any],
    accelerator: Accelerator,
    notes: Mapping[str, Any] | None = None,
) -> Run:
    """The stage's run, new or as it was left; the first process writes, the others read."""
    with accelerator.main_process_first():
        defaults = to_json(type(config)())
        first = accelerator.is_main_process
        return open_run(folder, stage, to_json(config), inputs, threads(), notes, defaults, locked=first)


def compute_with(count: int) -> None:
    """Lets torch compute with so many threads: one for models so small that more only wait for each other."""
    torch.set_num_threads(count)


def threads() -> int:
    """Threads that torch computes with; results are bit-identical only for the same number."""
    return torch.get_num_threads()
