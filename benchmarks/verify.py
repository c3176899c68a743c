"""Every "must hold" figure that takes too long for a test: `make verify` writes docs/results/verify.json.

    python -m benchmarks.verify                     everything: two hours on two cores, resumable
    python -m benchmarks.verify digits bench        some of it; the others keep their last result

Each part is a command of its own in this folder or a recipe, resumable where it is long.
"""

from __future__ import annotations

import importlib
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privit import __version__
from privit.sweep import read_recipe, run_sweep

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "verify.json"
PAPER_PLAN = [
    *("--model", "vit_tiny_patch16_224"),
    *("--kept-gelu-tokens", "127,1,41,6,5,6,6,4,1,1,1,1"),
    *("--kept-softmax-rows", "381,393,205,0,2,0,2,3,3,3,3,3"),
    *("--protocol", "semi2k-benchmark"),
    *("--ranges", str(ROOT / "docs" / "results" / "paper-plan-ranges.json")),
]
MAX_BYTES, MAX_ROUNDS = 240e6, 2800
MAX_LOSS, MIN_TEACHER = 0.015, 0.96


def bench() -> dict[str, Any]:
    """The paper's Tiny-ImageNet plan on ViT-Tiny, measured against the bounds of the product."""
    against = ["--against", "dense,dense-rewritten,scatter,without-ranges"]
    found = _json_of([sys.executable, "-m", "privit", "bench", "--json", *PAPER_PLAN, *against])
    shown = ("sent_bytes", "rounds", "seconds", "max_logit_error")
    result = {name: found[name] for name in (*shown, "protocol", "private", "measured_on")}
    result["against"] = {name: {k: each[k] for k in shown} for name, each in found["against"].items()}
    return result | {"holds": found["sent_bytes"] <= MAX_BYTES and found["rounds"] <= MAX_ROUNDS}


def search_step() -> dict[str, Any]:
    """Search and fine-tune steps against a plain KD step."""
    return _json_of([sys.executable, "-m", "benchmarks.search_step", "--json"])


def soak() -> dict[str, Any]:
    """200 queries with every tenth client killed."""
    found = _json_of([sys.executable, "-m", "benchmarks.soak"])
    return found | {"holds": found["passed"]}


def digits() -> dict[str, Any]:
    """The demo's line over three seeds: the teacher is good, and the student is near it."""
    accuracy = _swept("mini/digits")
    teacher, student = accuracy["teacher"]["mean"], accuracy["student"]["mean"]
    holds = teacher >= MIN_TEACHER and teacher - student <= MAX_LOSS
    return {"accuracy": accuracy, "loss": teacher - student, "holds": holds}


def cifar10_long() -> dict[str, Any]:
    """PriViT against plans of the same counts on CIFAR-10, three seeds."""
    return {"accuracy": _swept("cifar10/long")}


def _swept(recipe: str) -> dict[str, Any]:
    """Accuracies of a recipe's students over seeds, and of the teacher; finished stages are read."""
    size, _, experiment = recipe.partition("/")
    out = ROOT / "runs" / "sweeps" / size
    asked = read_recipe(ROOT / "recipes" / f"{recipe}.toml")
    run_sweep(asked, out, tell=lambda line: print(line, file=sys.stderr, flush=True))
    by_student: dict[str, list[float]] = {}
    for path in sorted(out.glob(f"cells/{experiment}/*/*/*/cell.json")):
        cell = json.loads(path.read_text())
        by_student.setdefault(cell["student"], []).append(cell["accuracy"])
        teachers = by_student.setdefault("teacher", [])
        if len(teachers) < len(by_student[cell["student"]]):
            teachers.append(cell["teacher_accuracy"])
    return {name: {"mean": statistics.fmean(found), "by_seed": found} for name, found in by_student.items()}


def _main_of(name: str) -> Callable[[], dict[str, Any]]:
    return lambda: importlib.import_module(f"benchmarks.{name}").main()


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "bench": bench,
    "search_step": search_step,
    "digits": digits,
    "agreement": _main_of("agreement"),
    "cifar10_long": cifar10_long,
    "soak": soak,
}


def main(names: list[str]) -> int:
    """Runs the parts asked for and merges them into the result; 1 if something does not hold."""
    unknown = sorted(set(names) - PARTS.keys())
    if unknown:
        print(f"error: no part is called {unknown[0]!r}\nhint: known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    known = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    failed = []
    for name in names or PARTS:
        print(f"--- {name}", file=sys.stderr, flush=True)
        started = time.monotonic()
        found = PARTS[name]()
        known[name] = found | {"took_seconds": round(time.monotonic() - started), "version": __version__}
        known["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(known, indent=2) + "\n")
        if found.get("holds") is False:
            failed.append(name)
    for name in failed:
        print(f"does not hold: {name}", file=sys.stderr)
    return 1 if failed else 0


def _json_of(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=ROOT)
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
