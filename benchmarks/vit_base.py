"""ViT-Base goes all the way: convert, switch, one search step, export, cost, compile; the memory it takes.

    python -m benchmarks.vit_base [--limit-gigabytes 12]

Random weights, 224 px, 86 million parameters. Each part runs in a process of its own, and the figure is its
peak resident set. The end is docs/results/vit-base.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODEL = "vit_base_patch16_224"
RESULT = Path(__file__).resolve().parents[1] / "docs" / "results" / "vit-base.json"
BATCH, CLASSES, EXPORT_IMAGES = 8, 1000, 8


def train_part(folder: Path) -> None:
    """Convert, switch, one search step, export."""
    import timm
    import torch
    import torch.nn.functional as F

    from privit.artifact import Preprocessing
    from privit.train.baselines import random_plan
    from privit.train.export import export_artifact
    from privit.train.hosts.convert import convert_timm
    from privit.train.stages import planned_student
    from privit.train.student.vit import Student

    torch.manual_seed(0)
    spec, weights = convert_timm(timm.create_model(MODEL))
    student = Student(spec)
    student.load_weights(weights)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)
    images = torch.randn(BATCH, spec.channels, spec.image_size, spec.image_size)
    loss = F.cross_entropy(student(images), torch.randint(spec.classes, (BATCH,)))
    for kind in ("gelu", "softmax"):
        loss = loss + 1e-4 * sum(switch.sum() for switch in student.switches(kind))
    loss.backward()
    optimizer.step()
    trained = student.weights()
    del student, optimizer, loss
    plan = random_plan(spec, 0.1, 0.1, seed=0)
    half = (0.5,) * spec.channels
    export_artifact(
        planned_student(spec, plan, trained),
        plan,
        Preprocessing(spec.image_size, spec.channels, half, half),
        tuple(str(i) for i in range(CLASSES)),
        images[:EXPORT_IMAGES].numpy(),
        folder,
        {"weights": "random"},
    )


def cost_part(folder: Path) -> None:
    """All three profiles."""
    from privit.artifact import load_artifact
    from privit.cost.estimate import estimate
    from privit.cost.spu.predict import estimate_spu

    artifact = load_artifact(folder)
    for profile in ("paper", "circuits"):
        estimate(artifact.public.spec, artifact.plan, profile)
    estimate_spu(artifact.public.spec, artifact.plan, "cheetah", ranges=artifact.public.ranges)


def compile_part(folder: Path) -> None:
    """The program that both parties run."""
    from privit.serve.compile.costly import describe_program

    describe_program(folder)


PARTS = {"train": train_part, "cost": cost_part, "compile": compile_part}


def main() -> dict[str, Any]:
    """Runs every part in a process of its own; prints and writes peaks and seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit-gigabytes", type=float, default=12.0)
    parser.add_argument("--part", nargs=2, metavar=("PART", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        PARTS[arguments.part[0]](Path(arguments.part[1]))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return {}
    result: dict[str, Any] = {"model": MODEL, "command": "python -m benchmarks.vit_base", "parts": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in PARTS:
            began = time.monotonic()
            command = [sys.executable, __file__, "--part", name, f"{folder}/artifact"]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            peak = int(output.split()[-1])
            result["parts"][name] = {"peak_bytes": peak, "seconds": round(time.monotonic() - began, 1)}
    result["holds"] = all(p["peak_bytes"] < arguments.limit_gigabytes * 1e9 for p in result["parts"].values())
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
