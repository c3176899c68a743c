"""docs/adding-an-operator.md is true: one entry and one function a side, and the whole way runs with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import privit

ENTRIES = """
    Operator(
        6, "floored", "gelu", "pointwise", "max(x, -1)", exact=True, steps=("compare_public", "select")
    ),
    Operator(
        26, "four_quad", "softmax", "normalised", "(s + 3)^4 / sum (s + 3)^4", steps=("square", "square")
    ),
    Operator(7, "half_square", "gelu", "square", "x^2 / 2 + x", coefficients=(0.5, 1.0, 0.0)),
    Operator(27, "half_attn", "softmax", "linear", "s / 2N", coefficients=(0.5, 0.0)),
"""
TORCH = '''
def floored(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """max(x, -1)."""
    return x.clamp(min=-1.0)


@normalised
def four_quad(scores: Tensor) -> Tensor:
    """(s + 3)^4."""
    return (scores + 3.0).square().square()


def half_square(x: Tensor, parameters: Parameters, variant: GeluVariant) -> Tensor:
    """x^2 / 2 + x."""
    return (0.5 * x + 1.0) * x


def half_attn(scores: Tensor, parameters: Parameters, tokens: int) -> Tensor:
    """s / 2N."""
    return 0.5 * scores / tokens
'''
JAX = '''
def floored(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """max(x, -1)."""
    return jnp.maximum(x, -1.0)


@normalised
def four_quad(scores: Array) -> Array:
    """(s + 3)^4."""
    return jnp.square(jnp.square(scores + 3.0))


def half_square(x: Array, parameters: Parameters, variant: GeluVariant) -> Array:
    """x^2 / 2 + x."""
    return (0.5 * x + 1.0) * x


def half_attn(scores: Array, parameters: Parameters, tokens: int) -> Array:
    """s / 2N."""
    return 0.5 * scores / tokens
'''
THE_WHOLE_WAY = """
import json, sys
from collections import Counter
from pathlib import Path

import numpy as np

from privit.artifact import load_artifact
from privit.config import FinetuneConfig, TeacherConfig
from privit.cost.estimate import estimate
from privit.data.datasets import load_data, preprocess_split
from privit.operators import operator
from privit.plan import plan_from_ids
from privit.program.graph import Graph
from privit.program.operations import operations
from privit.serve.compile.compile import compile_program
from privit.serve.compile.listing import program_operations
from privit.serve.engine.protocols import protocol
from privit.serve.measure.evaluate import evaluate, plain_logits
from privit.spec import Granularity
from privit.train.export import artifact_logits
from privit.train.finetune import export, finetune
from privit.train.teacher import train_teacher

out, few = Path(sys.argv[1]), {"epochs": 1, "batch_size": 32, "learning_rate": 1e-3}
model = "vit:image_size=8,patch=4,width=16,depth=2,heads=2,channels=1"
train_teacher(model, "digits", out / "teacher", TeacherConfig(pretrained=False, train_limit=128, **few))
gelu = [operator(name).id for name in ("floored", "gelu", "half_square", "identity", "floored")]
softmax = [operator(name).id for name in ("four_quad", "softmax", "half_attn", "squared_attn", "four_quad")]
rows = np.stack([softmax, np.roll(softmax, 1)])
plan = plan_from_ids(Granularity(), {"gelu": [np.array(gelu)] * 2, "softmax": [rows] * 2})
finetune(out / "teacher", out / "student", FinetuneConfig(**few), plan=plan)
export(out / "student", out / "artifact")

artifact, test = load_artifact(out / "artifact"), load_data("digits").test
spec, ranges = artifact.public.spec, artifact.public.ranges
pixels = preprocess_split(test, artifact.public.preprocessing, np.arange(3))
gap = np.abs(artifact_logits(artifact, pixels) - plain_logits(artifact, test, 3)).max()
program = compile_program(artifact.public, artifact.plan)
listed = Counter(o for _, part in operations(Graph(spec, artifact.plan, ranges=ranges)) for o in part)
compiled = Counter(program_operations(program.code, [entry.owner for entry in program.inputs]))
simulated = evaluate(out / "artifact", "simulated", "semi2k-benchmark", images=3, record=out / "record.json")
print(json.dumps({
    "gap": float(gap),
    "more_listed": [str(o) for o in listed - compiled],
    "more_compiled": [str(o) for o in compiled - listed],
    "max_logit_error": simulated["max_logit_error"],
    "seconds": estimate(spec, artifact.plan, "spu", ranges=ranges)["seconds"],
}))
"""


def insert(path: Path, before: str, text: str) -> None:
    """Adds text before a line that stands in the file once."""
    found = path.read_text()
    assert found.count(before) == 1, path
    path.write_text(found.replace(before, text.strip("\n") + "\n" + before))


@pytest.mark.slow
def test_new_operators_take_one_place_a_side_from_the_teacher_to_the_simulated_prediction(
    tmp_path: Path,
) -> None:
    source = tmp_path / "privit"
    shutil.copytree(Path(privit.__file__).parent, source, ignore=shutil.ignore_patterns("__pycache__"))
    insert(source / "operators.py", ")\n\nBY_ID", ENTRIES)
    for side, functions in (("train/student", TORCH), ("serve/model", JAX)):
        insert(source / side / "activations.py", "\n\nFUNCTIONS: dict", functions)
    run = subprocess.run(
        [sys.executable, "-c", THE_WHOLE_WAY, str(tmp_path / "runs")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    # The short GELU and the short softmax are off by a few thousandths; fixed point by less than 0.05.
    assert found["gap"] < 0.02
    assert found["more_listed"] == found["more_compiled"] == []
    assert found["max_logit_error"] < 0.05
    assert found["seconds"] > 0
