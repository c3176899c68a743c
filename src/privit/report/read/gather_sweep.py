"""Cells from what `privit sweep` leaves: sweep.json lists them, each cell.json holds one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from privit.cost.budgets.price import ENGINE_UNITS, Price
from privit.errors import PrivitError
from privit.report.paper.published import data_set
from privit.report.read.cells import Allowance, Answer, Cell, Cells, Experiment, Measured, Missing, Subject
from privit.report.read.pricing import Prices, read_planned
from privit.runs import read_json

INDEX = "sweep.json"
NETWORKS = ("lan", "wan")
ROUNDS_SHOWN_BY = {"front", "seconds", "rounds"}


def gather_sweep(root: Path, protocol: str) -> Cells:
    """The experiments of every recipe that was run into `root`."""
    recipes = read_json(root / INDEX).get("recipes", {})
    experiments: dict[str, Experiment] = {}
    missing: list[Missing] = []
    cells: dict[str, Cell] = {}
    prices: dict[str, Prices] = {}
    for recipe in recipes.values():
        for entry in recipe.get("experiments", ()):
            experiments.setdefault(entry["name"], _experiment(entry, recipe))
        for entry in recipe.get("cells", ()):
            path = str(entry["cell"])
            if path not in cells:
                known = experiments.get(entry["experiment"])
                under = (known.protocol if known else "") or protocol
                found = _read(root, entry, prices.setdefault(under, Prices(under)))
                if isinstance(found, Missing):
                    missing.append(found)
                else:
                    cells[path] = found
    return Cells(
        ", ".join(recipes) or root.name,
        tuple(cells.values()),
        tuple(experiments.values()),
        tuple(dict.fromkeys(missing)),
        tuple(entry for cell in cells.values() for entry in cell.measured),
        protocol,
        dict(_facts(recipes)),
    )


def _experiment(entry: Mapping[str, Any], recipe: Mapping[str, Any]) -> Experiment:
    return Experiment(
        entry["name"],
        entry.get("title") or entry["name"],
        tuple(entry.get("shows", ())),
        entry.get("paper") or "",
        entry.get("note") or "",
        {method["label"]: method.get("about") or "" for method in entry.get("methods", ())},
        entry.get("settings") or recipe.get("settings") or {},
        _protocol(entry),
        bool(entry.get("prices")),
    )


def _protocol(entry: Mapping[str, Any]) -> str:
    """The one protocol in which an experiment's budgets in cost are given, if there is one."""
    given = {price["protocol"] for price in entry.get("prices", ()) if price["unit"] in ENGINE_UNITS}
    return str(given.pop()) if len(given) == 1 else ""


def _read(root: Path, entry: Mapping[str, Any], prices: Prices) -> Cell | Missing:
    name = f"{entry['experiment']}: {entry['method']}, {entry['budget']}, seed {entry['seed']}"
    path = root / entry["cell"]
    if not path.is_file():
        return Missing(name, "not run yet")
    try:
        data = read_json(path)
        if data.get("status") != "done":
            return Missing(name, str(data.get("error") or "failed"))
        return _with_rounds(_cell(data, prices.protocol), root, data, prices)
    except (PrivitError, KeyError, TypeError, ValueError) as error:
        return Missing(name, f"cannot be read: {type(error).__name__} {error}")


def _cell(data: Mapping[str, Any], protocol: str) -> Cell:
    cost = data.get("cost") or {}
    budget = data["budget"]
    return Cell(
        data["experiment"],
        data["method"],
        data["label"],
        budget["name"],
        int(data["seed"]),
        Subject(data_set(data["data"]), data["model"]),
        float(data["accuracy"]),
        data["kept"],
        data["sites"],
        data["granularity"],
        budget.get("sites") or {},
        _costs(data, cost, protocol),
        (cost.get("by_part") or {}).get("relu_ops") or {},
        allowance=_allowance(budget, cost),
        class_names=tuple(data.get("class_names") or ()),
        class_accuracy=tuple(data.get("per_class_accuracy") or ()),
        teacher_class_accuracy=tuple(data.get("teacher_per_class_accuracy") or ()),
        teacher_accuracy=data.get("teacher_accuracy"),
        measured=tuple(_measured(data, cost)),
        warnings=tuple(data.get("warnings") or ()),
        folder=data.get("run") or "",
        student=data.get("student") or f"{data['method']}-{budget['name']}",
        student_label=data.get("student_label") or f"{data['label']}, {budget['name']}",
        unservable=data.get("artifact_problem") or "",
        validation_accuracy=data.get("validation_accuracy"),
        predicted={p: _priced(cost, p) for p in cost.get("spu") or {}},
        benched=data.get("measured") or {},
        answers=tuple(_answers(data)),
        tokens=tuple(data.get("tokens") or ()),
    )


def _allowance(budget: Mapping[str, Any], cost: Mapping[str, Any]) -> Allowance | None:
    """A budget in cost beside what came of it; None for one in sites."""
    if not budget.get("price"):
        return None
    price = Price(**budget["price"])
    on = ((cost.get("spu") or {}).get(price.protocol) or {}).get(price.network) or {}
    exported = {"seconds": on.get("seconds"), "bytes": on.get("sent_bytes"), "rounds": on.get("rounds")}
    return Allowance(
        price,
        float(budget["asked"][price.unit]),
        budget.get("predicted_cost"),
        exported.get(price.unit, cost.get(price.unit)),
    )


def _costs(data: Mapping[str, Any], cost: Mapping[str, Any], protocol: str) -> dict[str, float]:
    names = ("kept_gelu_elements", "kept_softmax_rows")
    found = {name: data.get(name) for name in names}
    found |= {name: cost.get(name) for name in ("relu_ops", "and_gates")}
    known = {name: float(value) for name, value in found.items() if value is not None}
    return known | _priced(cost, protocol)


def _priced(cost: Mapping[str, Any], protocol: str) -> dict[str, float]:
    """What one prediction is estimated to cost under a protocol, by axis."""
    on = (cost.get("spu") or {}).get(protocol) or {}
    found: dict[str, Any] = {}
    for network in NETWORKS:
        priced = on.get(network) or {}
        found |= {name: priced.get(name, found.get(name)) for name in ("sent_bytes", "rounds")}
        found[f"seconds_{network}"] = priced.get("seconds")
    return {name: float(value) for name, value in found.items() if value is not None}


def _answers(data: Mapping[str, Any]) -> Iterator[Answer]:
    """What the model said under MPC; one that could not be asked said nothing."""
    for key in ("agreement", "private"):
        for protocol, found in (data.get(key) or {}).items():
            if "refused" not in found:
                images = int(found["images"])
                yield Answer(
                    protocol,
                    key == "private",
                    images,
                    round(images * float(found["agreement"])),
                    round(images * float(found["accuracy"])),
                    *(float(found[name]) for name in ("sent_bytes", "rounds", "seconds")),
                )


def _measured(data: Mapping[str, Any], cost: Mapping[str, Any]) -> Iterator[Measured]:
    program = f"{data['label']}, {data['budget']['name']}"
    for on, found in (data.get("measured") or {}).items():
        protocol, _, network = on.partition("/")
        predicted = ((cost.get("spu") or {}).get(protocol) or {}).get(network or "lan") or {}
        if network and found.get("seconds") and predicted.get("seconds"):
            seconds = float(predicted["seconds"]), float(found["seconds"])
            yield Measured(program, protocol, f"seconds_{network}", *seconds, str(found["measured_on"]))
        for quantity, refill in (("sent_bytes", "refill_bytes"), ("rounds", "refill_rounds")):
            if found.get(quantity) and predicted.get(quantity):
                yield Measured(
                    program,
                    protocol,
                    quantity,
                    # Refills of transfers come every few queries; the one that was measured had none.
                    float(predicted[quantity]) - float(predicted.get(refill) or 0),
                    float(found[quantity]),
                    str(found.get("measured_on", "")),
                )


def _with_rounds(cell: Cell, root: Path, data: Mapping[str, Any], prices: Prices) -> Cell:
    """The cell with rounds per layer, where its plan is still there and somebody wants to see them."""
    folder = root / str(data.get("run"))
    wanted = ROUNDS_SHOWN_BY & set(data.get("shows") or ())
    if not wanted or not (folder / "plan.safetensors").is_file():
        return cell
    spec, plan = read_planned(cut if (cut := folder / "budgets" / cell.budget).is_dir() else folder, folder)
    public = root / str(data.get("artifact")) / "client" / "public.json"
    ranges = read_json(public).get("ranges") if public.is_file() else None
    if cell.method == "dense":
        # The untouched model as written is another program than a plan that keeps everything.
        return replace(cell, layer_rounds=prices.layer_rounds(spec, plan, ranges, "dense"))
    return replace(
        cell,
        layer_rounds=prices.layer_rounds(spec, plan, ranges),
        kind_rounds=prices.kind_rounds(spec, plan, ranges),
    )


def _facts(recipes: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, recipe in recipes.items():
        seeds = ", ".join(str(seed) for seed in recipe.get("seeds", ()))
        parts = [f"{recipe.get('model', '')} on {recipe.get('data', '')}", f"seeds {seeds}"]
        if recipe.get("seconds"):
            cores, jobs = recipe.get("cores", "?"), recipe.get("jobs", "?")
            parts.append(f"{float(recipe['seconds']) / 60:.1f} minutes with {jobs} jobs on {cores} cores")
        if recipe.get("cpu_seconds"):
            parts.append(f"{float(recipe['cpu_seconds']) / 60:.1f} minutes of CPU time")
        yield f"{name} ({recipe.get('file', '')})", "; ".join(parts)
