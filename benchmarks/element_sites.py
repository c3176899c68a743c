"""Whether 7.26 million GELU sites, those of ViT-Base by element, are switched, ranked, frozen and exported.

    python -m benchmarks.element_sites [--json]

One image, random weights. Nothing here may loop over sites in Python; the figures say what each part takes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from privit.artifact import Preprocessing
from privit.spec import KINDS, Granularity, Spec, vit_spec
from privit.train.export import export_artifact
from privit.train.student.switch import rank_plan
from privit.train.student.vit import Student

KEPT_SHARE = 0.1


def vit_base(classes: int) -> Spec:
    """ViT-Base/16 at 224 px."""
    return vit_spec(image_size=224, patch_size=16, width=768, depth=12, heads=12, classes=classes)


def run(spec: Spec) -> dict[str, object]:
    """Seconds for each part, and how many sites there were and were kept."""
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - start

    torch.manual_seed(0)
    with timed("build"):
        student = Student(spec, Granularity("element", "row"))
    image = torch.randn(1, spec.channels, spec.image_size, spec.image_size)
    with timed("search_step"):
        student(image).square().sum().backward()
    gradients = [s.grad is not None for kind in KINDS for s in student.switches(kind)]
    with timed("rank_and_freeze"):
        for kind in KINDS:
            # Random weights leave all switches at 1: their gradients rank them instead.
            values = [-s.grad.numpy() for s in student.switches(kind) if s.grad is not None]
            kept = rank_plan(values, int(KEPT_SHARE * sum(v.size for v in values)))
            student.freeze(kind, student.ids_where(kind, kept))
    student.zero_grad()
    with timed("frozen_step"):
        student(image).square().sum().backward()
    plan = student.plan()
    preprocessing = Preprocessing(spec.image_size, spec.channels, (0.5,) * 3, (0.5,) * 3)
    names = [str(i) for i in range(spec.classes)]
    with timed("export"), tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        artifact = export_artifact(student, plan, preprocessing, names, image, out)
        plan_bytes = (out / "client" / "plan.safetensors").stat().st_size
    return {
        "gelu_sites": plan.total("gelu"),
        "kept_gelu": sum(artifact.plan.kept("gelu")),
        "plan_bytes": plan_bytes,
        "every_switch_has_a_gradient": all(gradients),
        "seconds": seconds,
    }


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """Measures and prints; with --json, exactly one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    result = run(vit_base(classes=10))
    if given.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(key.replace("_", " "), value)
    return result


if __name__ == "__main__":
    main()
