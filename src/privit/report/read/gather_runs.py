"""Cells from any folder of runs: teachers, searches, fine-tunings and artifacts, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from privit.artifact import load_artifact
from privit.errors import PrivitError
from privit.report.paper.published import data_set
from privit.report.read.cells import Cell, Cells, Experiment, Measured, Missing, Subject
from privit.report.read.pricing import Prices, read_planned
from privit.runs import Run, read_json

LABELS = {"privit": "PriViT", "layerwise": "layer-wise"}
"""Folder names that are known by another spelling."""
SHOWS = ("front", "table", "layers", "rounds", "breakdown", "degradation", "measured")


def gather_runs(root: Path, protocol: str) -> Cells:
    """One experiment per data set and architecture, a cell per finished run."""
    missing: list[Missing] = []
    runs = list(_finished(root, missing))
    prices, ranges = Prices(protocol), _ranges(root)
    students = [run for run in runs if run.stage == "finetune"]
    # What a search found is plotted where nothing was made from it; otherwise the fine-tuned model is.
    chosen = students or [run for run in runs if run.stage == "search"]
    teachers = [run for run in runs if run.stage == "teacher"]
    cells = [cell for run in [*teachers, *chosen] if (cell := _cell(root, run, prices, ranges, missing))]
    names = _names(list(dict.fromkeys(cell.subject for cell in cells)))
    cells = [replace(cell, experiment=names[cell.subject]) for cell in sorted(cells, key=_order)]
    experiments = tuple(Experiment(n, f"Runs on {s.data}", SHOWS, note=s.model) for s, n in names.items())
    measured = tuple(_measured_privately(root))
    return Cells(root.resolve().name, tuple(cells), experiments, tuple(missing), measured, protocol)


def _order(cell: Cell) -> tuple[bool, bool]:
    """The paper's method first, the untouched model last; otherwise as found."""
    return cell.method == "dense", not cell.ours


def _names(subjects: list[Subject]) -> dict[Subject, str]:
    """The data set's name for each subject, numbered where architectures share a data set."""
    known = [subject.data for subject in subjects]
    return {
        subject: subject.data if known.count(subject.data) == 1 else f"{subject.data} {i}"
        for i, subject in enumerate(subjects, 1)
    }


def _finished(root: Path, missing: list[Missing]) -> Iterator[Run]:
    for path in sorted(root.rglob("config.json")):
        name = str(path.parent.relative_to(root))
        try:
            run = Run(path.parent, read_json(path))
            if not {"stage", "config", "inputs"} <= run.description.keys():
                continue
            if run.result() is None:
                missing.append(Missing(name, f"not finished: start its {run.stage} command again"))
            else:
                yield run
        except PrivitError as error:
            missing.append(Missing(name, error.message))


def _ranges(root: Path) -> dict[str, dict[str, float]]:
    """Plan to fixed-point ranges, of every artifact that can be read."""
    found = {}
    for path in sorted(root.rglob("public.json")):
        try:
            artifact = load_artifact(path.parent)
        except PrivitError:
            continue
        found[artifact.plan.hash()] = artifact.public.ranges
    return found


def _cell(
    root: Path, run: Run, prices: Prices, ranges: Mapping[str, Any], missing: list[Missing]
) -> Cell | None:
    name = str(run.folder.relative_to(root))
    result = run.result() or {}
    try:
        spec, plan = read_planned(run.folder)
        model = read_json(run.folder / "model.json")
        price = prices.of(spec, plan, ranges.get(plan.hash()))
        accuracy = float(result["accuracy"])
    except (PrivitError, KeyError, TypeError, ValueError) as error:
        missing.append(Missing(name, f"cannot be read: {error}"))
        return None
    method, label = _named(run)
    kept = {kind: plan.kept(kind) for kind in plan.layers}
    subject = Subject(data_set(str(model["data"]["name"])), describe(model["spec"]))
    return Cell(
        "",
        method,
        label,
        " + ".join(f"{sum(kept[kind])} {kind}" for kind in kept if kind != "norm" or plan.replaces(kind)),
        int(run.description["config"].get("seed", 0)),
        subject,
        accuracy,
        kept,
        {kind: plan.total(kind) for kind in plan.layers},
        vars(plan.granularity).copy(),
        tokens=tuple(spec.tokens_in(layer) for layer in range(spec.depth)),
        costs=price.costs,
        parts=price.parts,
        layer_rounds=price.layer_rounds,
        kind_rounds=price.kind_rounds,
        class_names=tuple(model["class_names"]),
        teacher_accuracy=_teacher_accuracy(run),
        warnings=tuple(result.get("warnings", ())),
        folder=name,
    )


def _named(run: Run) -> tuple[str, str]:
    """Method and label: what the stage is, or what somebody called the folder."""
    if run.stage == "teacher":
        return "dense", "teacher"
    if run.stage == "search":
        return "privit-search", "PriViT before fine-tuning"
    swapped = run.description["config"].get("swap", {}).get("gelu") == "relu"
    if run.folder.name == "finetune":
        if not swapped and _chosen_without_training(run):
            return "fitted", "fitted, chosen without training"
        return ("privit-r", "PriViT-R") if swapped else ("privit-g", "PriViT-G")
    return run.folder.name, LABELS.get(run.folder.name, run.folder.name)


def _chosen_without_training(run: Run) -> bool:
    where = run.description.get("notes", {}).get("search")
    try:
        return where is not None and not read_json(run.folder / where / "config.json")["config"]["training"]
    except (PrivitError, KeyError, TypeError):
        return False  # A trained search does not say so.


def describe(spec: Mapping[str, Any]) -> str:
    """An architecture in a few words."""
    blocks = spec["blocks"]
    heads, size = blocks[0]["heads"], spec["image_size"]
    return (
        f"ViT of {len(blocks)} layers, width {spec['width']}, {heads} heads, "
        f"{size} px in patches of {spec['patch_size']}"
    )


def _teacher_accuracy(run: Run) -> float | None:
    where = run.description.get("notes", {}).get("teacher")
    if not where:
        return None
    path = run.folder / where / "result.json"
    try:
        return float(read_json(path)["accuracy"])
    except (PrivitError, KeyError, TypeError, ValueError):
        return None


def _measured_privately(root: Path) -> Iterator[Measured]:
    """What the demo's queries really sent, beside what was predicted for its artifact."""
    for path in sorted(root.rglob("demo.json")):
        try:
            private = read_json(path)["private"]
            artifact = load_artifact(path.parent / "artifact")
            # The first query of a session also pays for what later ones find prepared.
            queries = private["predictions"][1:] or private["predictions"]
            found = Prices(private["protocol"]).of(artifact.spec, artifact.plan, artifact.public.ranges)
            for quantity in ("sent_bytes", "rounds"):
                mean = sum(query[quantity] for query in queries) / len(queries)
                yield Measured(
                    "demo",
                    private["protocol"],
                    quantity,
                    found.costs[quantity],
                    mean,
                    private["measured_on"],
                )
        except (PrivitError, KeyError, TypeError, ZeroDivisionError):
            continue
