"""The paper's plan with real weights: ranges of real images, for `privit bench --ranges`.

    PRIVIT_DATA=FOLDER python -m benchmarks.paper_plan [--images 512] [--out FILE]
    privit bench --model deit_tiny_patch16_224 --protocol semi2k-benchmark ... --ranges FILE

DeiT-Tiny at 224 px with ImageNet's weights and its own thousand classes. The sites that the paper's plan
keeps stay exact, fitted stand-ins stand elsewhere: half of the images fit them, all are measured. The data
are photographs, scaled up.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from privit.data.datasets import load_data, preprocess_split
from privit.operators import FITTED
from privit.plan import plan_from_counts
from privit.runs import write_text
from privit.train.fitting.fit import FitConfig, fit
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.hosts.convert import load_host
from privit.train.stages import exact_plan, planned_student

RESULT = Path(__file__).resolve().parents[1] / "docs" / "results" / "paper-plan-deit-ranges.json"
GELU_TOKENS = (127, 1, 41, 6, 5, 6, 6, 4, 1, 1, 1, 1)
SOFTMAX_ROWS = (381, 393, 205, 0, 2, 0, 2, 3, 3, 3, 3, 3)
MODEL = "timm:deit_tiny_patch16_224"


def main() -> None:
    """Writes the ranges that the fitted student has."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--out", type=Path, default=RESULT)
    wanted = parser.parse_args()
    host = load_host(MODEL, None, None)
    assert host.preprocessing is not None
    split = load_data(wanted.data).train
    pixels = preprocess_split(split, host.preprocessing, np.arange(wanted.images))
    plan = plan_from_counts(host.spec, list(GELU_TOKENS), list(SOFTMAX_ROWS), stand_in=FITTED)
    teacher = planned_student(host.spec, exact_plan(host.spec), host.weights)
    student = planned_student(host.spec, plan, host.weights)
    fitted = fit(student, pixels[: wanted.images // 2], FitConfig(images=wanted.images // 2), teacher)
    write_text(wanted.out, json.dumps(measure_ranges(fitted, pixels), indent=1) + "\n")
    print(wanted.out)


if __name__ == "__main__":
    main()
