"""What a finished run is worth: accuracy, what it kept, its artifact and what a private prediction costs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privit.cost.estimate import breakdown, estimate
from privit.errors import PrivitError
from privit.operators import BY_ID
from privit.plan import Plan, uniform_plan
from privit.runs import Run, load_run
from privit.spec import KINDS, Spec

SPU_FIGURES = ("sent_bytes", "rounds", "seconds", "compute_seconds", "refill_bytes", "refill_rounds")


def result_of_run(stages: Path, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The result of one run; with `export`, its artifact is written beside result.json."""
    from privit.train.class_accuracy import class_accuracy
    from privit.train.search import cut_folder
    from privit.train.stages import read_model

    run, teacher = load_run(stages / wanted["run"]), load_run(stages / wanted["teacher"], "teacher")
    budget = wanted.get("budget")
    model, original = read_model(run, cut_folder(run, budget) if budget else None), read_model(teacher)
    data = model.subject.load()
    figures, before = class_accuracy(model, data), class_accuracy(original, data)
    line = _line(run)
    result: dict[str, Any] = {
        **figures,
        "validation_accuracy": _cut(run, budget).get("validation_accuracy"),
        "teacher_accuracy": before["accuracy"],
        "teacher_per_class_accuracy": before["per_class_accuracy"],
        "class_names": list(model.subject.class_names),
        "run": f"stages/{run.folder.name}",
        "search": next((f"stages/{r.folder.name}" for r in line if r.stage == "search"), None),
        "teacher": f"stages/{teacher.folder.name}",
        **_described(model.subject.spec, model.plan),
        "epochs": {r.stage: (r.result() or {}).get("epochs") for r in line},
        "seconds": {r.stage: (r.result() or {}).get("seconds") for r in line},
        "warnings": [text for r in line for text in (r.result() or {}).get("warnings", [])],
    }
    result |= (
        _exported(stages, name, run, budget)
        if wanted["export"]
        else {"artifact": None, "artifact_problem": None, "program": None}
    )
    searched = next((r for r in line if r.stage == "search"), None)
    cut = budget or run.description["inputs"].get("budget")
    predicted = _cut(searched, cut).get("predicted_cost") if searched else None
    result |= {} if predicted is None else {"predicted_cost": predicted}
    ranges, guard = result.pop("ranges", None), result.pop("guard", False)
    result["cost"] = costs(model.subject.spec, model.plan, wanted, ranges, guard)
    return result


def costs(
    spec: Spec,
    plan: Plan,
    wanted: Mapping[str, Any],
    ranges: Mapping[str, float] | None,
    guard: bool = False,
) -> dict[str, Any]:
    """A plan's cost under every profile; `wanted` names protocols, networks and the graph that SPU runs."""
    found: dict[str, Any] = {"by_part": {}}
    for profile, unit in (("paper", "relu_ops"), ("circuits", "and_gates")):
        whole = estimate(spec, plan, profile)
        found[unit] = whole.total
        found[f"{unit}_without_square"] = estimate(spec, plan, f"{profile}-without-square").total
        found["by_part"][unit] = {part: round(cost) for part, cost in breakdown(whole).items()}
        found.setdefault("extrapolated", list(whole.extrapolated))
    found |= {"with_ranges": ranges is not None, "guard": guard, "graph": wanted["graph"]}
    program = {"ranges": ranges, "guard": guard, "rewrites": wanted["graph"]}
    found["spu"] = {
        protocol: {n: _spu(spec, plan, protocol, n, program) for n in wanted["networks"]}
        for protocol in wanted["protocols"]
    }
    return found


def _line(run: Run) -> list[Run]:
    """The run and those it came from, the teacher first."""
    line, notes = [run], run.description.get("notes", {})
    for earlier in ("search", "teacher"):
        if earlier in notes:
            before = load_run(Path(os.path.normpath(run.folder / notes[earlier])))
            if before.folder != line[0].folder:
                line.insert(0, before)
    return line


def _described(spec: Spec, plan: Plan) -> dict[str, Any]:
    whole = uniform_plan(spec, granularity=plan.granularity)
    return {
        "kept": {kind: plan.kept(kind) for kind in KINDS},
        **{f"kept_{kind}": sum(plan.kept(kind)) for kind in KINDS},
        "sites": {kind: plan.total(kind) for kind in KINDS},
        "granularity": {kind: plan.granularity.of(kind) for kind in KINDS},
        "kept_gelu_elements": plan.kept_gelu_elements(spec),
        "kept_softmax_rows": plan.kept_softmax_rows(spec),
        "total_gelu_elements": whole.kept_gelu_elements(spec),
        "total_softmax_rows": whole.kept_softmax_rows(spec),
        "operators": {kind: _operators(plan, kind) for kind in KINDS},
        "tokens": [spec.tokens_in(layer) for layer in range(spec.depth)],
        "plan": plan.hash(),
    }


def _operators(plan: Plan, kind: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for ids in plan.layers[kind]:
        for i, count in zip(*np.unique(ids, return_counts=True), strict=True):
            counts[BY_ID[int(i)].name] += int(count)
    return dict(counts)


def _cut(run: Run, budget: str | None) -> dict[str, Any]:
    """What a run says of one of its budgets, or of its end."""
    result = run.result() or {}
    return dict(result.get("budgets", {}).get(budget, {})) if budget else result


def _exported(stages: Path, name: str, run: Run, budget: str | None) -> dict[str, Any]:
    """The artifact's path, or why there is none: a model that the engine cannot hold has an accuracy too.

    Of such a model the program alone is kept, without weights: it can be costed and never served.
    """
    from privit.exporting import export
    from privit.train.finetune import export_program

    folder = stages / name / "artifact"
    folder.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"artifact": f"stages/{name}/artifact", "artifact_problem": None, "program": None}
    try:
        public = export(run.folder, folder, budget).public
        return found | {"ranges": public.ranges, "guard": public.guard}
    except PrivitError as error:
        program = export_program(run.folder, stages / name / "program", budget)
        found |= {"artifact": None, "artifact_problem": error.message, "program": f"stages/{name}/program"}
        return found | {"ranges": program.public.ranges}


def _spu(spec: Spec, plan: Plan, protocol: str, network: str, program: Mapping[str, Any]) -> dict[str, Any]:
    found = estimate(spec, plan, "spu", protocol=protocol, network=network, **program)
    return {name: found[name] for name in SPU_FIGURES} | {"private": found["private"]}
