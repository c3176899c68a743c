"""Whether a wrong answer can pass the guard: `python -m benchmarks.guard ARTIFACT --data digits`.

Odd inputs of many kinds, some built by gradients to drive a watched value up, are answered in the engine's
own arithmetic (`serve/engine/reference.py`), some of them with secrets shared, too. An answer is wrong if a
logit is further from the torch student's than the error that the export wrote into the artifact, or if
another class wins than one that leads by more than that. No wrong answer may go unflagged, and of the
test images of the data set hardly any may be flagged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from privit.artifact import Artifact, load_artifact, save_artifact
from privit.data.datasets import load_data, preprocess_split
from privit.data.images import preprocess
from privit.program.graph import Graph
from privit.serve.compile.compile import PATCHES, client_values, compile_program, server_values
from privit.serve.engine.protocols import protocol
from privit.serve.engine.reference import reference_answers
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.exported import finish_export, watched
from privit.serve.measure.odd import inverted, normalised
from privit.serve.model.forward import forward
from privit.train.export import artifact_logits

GRADIENT_STEPS = 12
BATCH = 16
Kinds = Iterator[tuple[str, np.ndarray]]


def odd_inputs(artifact: Artifact, images: np.ndarray, other: np.ndarray, each: int) -> Kinds:
    """Kinds of preprocessed inputs (each, C, S, S), by name."""
    pre, rng = artifact.public.preprocessing, np.random.default_rng(1)
    shape = (each, *images.shape[1:])
    some = images[rng.integers(0, len(images), each)]
    raw = some * np.array(pre.std)[:, None, None] + np.array(pre.mean)[:, None, None]
    yield "uniform noise", normalised(pre, rng.uniform(0, 1, shape))
    yield "salt and pepper", normalised(pre, rng.integers(0, 2, shape).astype(float))
    yield "flat", normalised(pre, np.broadcast_to(rng.uniform(0, 1, (each, shape[1], 1, 1)), shape))
    yield "stripes", normalised(pre, _stripes(rng, shape))
    yield "inverted", inverted(pre, some)
    yield "higher contrast", normalised(pre, np.clip(3 * (raw - 0.5) + 0.5, 0, 1))
    yield "one bright spot", normalised(pre, _spots(rng, shape))
    yield "another data set", other[rng.integers(0, len(other), each)]
    yield "not normalised", raw.astype(np.float32)
    yield "normalised twice", normalised(pre, some)
    yield "ten times as bright", (10 * some).astype(np.float32)
    yield "from 0 to 255", (255 * raw).astype(np.float32)
    yield "built by gradients", _built(artifact, some, bounded=True)
    yield "built by gradients, unbounded", _built(artifact, some, bounded=False)


def _stripes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n, channels, side, _ = shape
    phase = rng.integers(1, max(side // 2, 2) + 1, n)[:, None]
    line = (np.arange(side)[None] // phase) % 2
    grid = np.broadcast_to(line[:, None, None, :], (n, channels, side, side)).astype(float).copy()
    grid[::2] = grid[::2].swapaxes(2, 3)
    return grid


def _spots(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    made = np.zeros(shape)
    for image in made:
        row, column = rng.integers(0, shape[2], 2)
        image[:, row, column] = 1.0
    return made


def _built(artifact: Artifact, images: np.ndarray, bounded: bool) -> np.ndarray:
    """Images that climb a watched value: each another one (a variance, a row sum, a score)."""
    assert artifact.weights is not None
    public, graph = artifact.public, Graph.of(artifact.public, artifact.plan)
    values = server_values(public, artifact.plan, artifact.weights)
    names = sorted(watched(public, artifact.plan, artifact.weights, images[:1]))
    low, high = (
        float(normalised(public.preprocessing, np.full((1, *images.shape[1:]), v)).mean()) for v in (0, 1)
    )

    def climbed(patches: jax.Array, which: jax.Array) -> jax.Array:
        found: dict[str, jax.Array] = {}
        forward(graph, values | {PATCHES: patches}, lambda n, v: found.update({n: v}))
        peaks = jnp.stack([jnp.max(jnp.log1p(jnp.abs(found[name]))) for name in names if name in found])
        return jnp.sum(peaks * (jnp.arange(len(peaks)) == which))

    step = jax.jit(jax.vmap(jax.grad(climbed)))
    patches = np.stack([client_values(public, image)[PATCHES] for image in images])
    made = []
    for start in range(0, len(patches), BATCH):
        part = patches[start : start + BATCH]
        part = np.resize(part, (BATCH, *part.shape[1:]))
        which = (start + np.arange(BATCH)) % len(names)
        for _ in range(GRADIENT_STEPS):
            moved = part + (high - low) / 6 * np.sign(np.nan_to_num(np.asarray(step(part, which))))
            part = np.clip(moved, low, high) if bounded else moved
        made.append(part[: len(patches) - start])
    return _joined(public.spec, np.concatenate(made))


def _joined(spec: Any, patches: np.ndarray) -> np.ndarray:
    """Patches (n, P, values) as images: what `cut_patches` undoes."""
    side, patch = spec.image_size // spec.patch_size, spec.patch_size
    cut = patches.reshape(-1, side, side, spec.channels, patch, patch).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(cut.reshape(-1, spec.channels, spec.image_size, spec.image_size), np.float32)


def judged(
    artifact: Artifact, answers: np.ndarray, student: np.ndarray, images: np.ndarray
) -> dict[str, Any]:
    """How many answers are wrong, flagged, and wrong without a flag."""
    classes, error = artifact.spec.classes, artifact.public.logit_error
    assert error is not None
    logits, bit = answers[:, :classes], answers[:, classes] < 0.5
    # A client makes its input from 8-bit pictures: what lies beyond them never reaches a server.
    beyond = np.abs(images).max(axis=(1, 2, 3)) > artifact.public.preprocessing.largest_pixel * 1.001
    off = np.abs(logits - student).max(axis=1)
    best = np.sort(student, axis=1)
    lead = best[:, -1] - best[:, -2]
    wrong = ~(off <= error) | ((logits.argmax(1) != student.argmax(1)) & (lead > error))
    return {
        "inputs": len(images),
        "wrong": int(wrong.sum()),
        "flagged": int(bit.sum()),
        "not a picture": int(beyond.sum()),
        "wrong, not flagged": int((wrong & ~bit).sum()),
        "largest error not flagged": float(off[~bit].max(initial=0.0)),
    }


def tightened(folder: Path, out: Path, images: np.ndarray, count: int) -> Artifact:
    """The artifact as an export from too few images would make it: all short forms, in ranges too narrow."""
    from dataclasses import replace

    from privit.serve.measure.bench import measured_ranges

    artifact = load_artifact(folder)
    assert artifact.weights is not None
    ranges: dict[str, float] = {}
    for image in images[:count]:
        for name, value in measured_ranges(artifact.public, artifact.plan, artifact.weights, image).items():
            ranges[name] = (min if name.endswith("_low") else max)(ranges.get(name, value), value)
    public = replace(artifact.public, ranges=artifact.public.ranges | ranges)
    save_artifact(out, public, artifact.plan, artifact.weights)
    return finish_export(out, images, lambda given: artifact_logits(artifact, given))[0]


def other_images(artifact: Artifact, name: str, count: int) -> np.ndarray:
    """Pictures of another data set, preprocessed for this model."""
    test = load_data(name).test
    mode = {1: "L", 3: "RGB"}[artifact.spec.channels]
    picked = [test.image(i).convert(mode).resize((artifact.spec.image_size,) * 2) for i in range(count)]
    return np.stack([preprocess(picture, artifact.public.preprocessing) for picture in picked])


def run(
    artifact: Artifact,
    data: str,
    other: str,
    each: int,
    tests: range,
    shared: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """The report: every kind of input, the test images, and some inputs under a real protocol.

    Without inputs of each kind only the test images are answered.
    """
    assert artifact.weights is not None
    public, student = artifact.public, lambda given: artifact_logits(artifact, given)
    program, values = (
        compile_program(public, artifact.plan),
        server_values(public, artifact.plan, artifact.weights),
    )
    test = load_data(data).test
    good = preprocess_split(test, public.preprocessing, np.array([i for i in tests if i < len(test)]))
    found: dict[str, Any] = {"logit_error": public.logit_error, "kinds": {}}
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    started = time.process_time()
    inputs = [("test images", good)]
    if each:
        inputs += odd_inputs(artifact, good, other_images(artifact, other, 64), each)
    for name, images in inputs:
        answers = reference_answers(artifact, images)
        found["kinds"][name] = judged(artifact, answers, student(images), images)
        kept += [(images[i], answers[i]) for i in range(0, len(images), max(len(images) // 4, 1))]
        tell(f"{name}: {found['kinds'][name]}")
    found["reference_seconds_each"] = (time.process_time() - started) / sum(len(i) for _, i in inputs)
    some = [kept[i] for i in np.linspace(0, len(kept) - 1, min(shared, len(kept))).astype(int)]
    found["shared"] = _shared(artifact, program, values, some, student) if some else None
    odd = [kind for name, kind in found["kinds"].items() if name != "test images"]
    found["odd_inputs"] = sum(kind["inputs"] for kind in odd)
    found["odd_wrong"] = sum(kind["wrong"] for kind in odd)
    found["odd_flagged"] = sum(kind["flagged"] for kind in odd)
    found["wrong_not_flagged"] = sum(kind["wrong, not flagged"] for kind in found["kinds"].values())
    return found


def _shared(artifact, program, values, kept, student) -> dict[str, Any]:  # type: ignore[no-untyped-def]
    """The same inputs with the secrets shared: are they flagged alike, and no wrong answer without a flag?"""
    images = np.stack([image for image, _ in kept])
    with Simulator(protocol("semi2k-benchmark")) as simulator:
        simulator.give(program.inputs, values)
        answers = []
        for image in images:
            simulator.give(program.inputs, client_values(artifact.public, image))
            simulator.run(program.executable)
            answers.append(simulator.open(program.output))
    made = np.stack(answers)
    alike = (made[:, -1] < 0.5) == (np.stack([answer for _, answer in kept])[:, -1] < 0.5)
    return judged(artifact, made, student(images), images) | {"flagged alike": int(alike.sum())}


def main() -> None:
    """Prints the report as one JSON object; exit code 1 if a wrong answer was not flagged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--other", default="cifar10", help="another data set")
    parser.add_argument("--each", type=int, default=150, help="inputs of each kind; 0 for none")
    parser.add_argument("--tests", type=int, default=2000, help="test images")
    parser.add_argument("--skip", type=int, default=0, help="test images to leave out, from the first on")
    parser.add_argument("--shared", type=int, default=50, help="inputs that run under semi2k-benchmark, too")
    parser.add_argument(
        "--tight", type=int, default=0, help="first narrow the ranges to so many images, in --out"
    )
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    artifact = load_artifact(asked.artifact)
    if asked.tight:
        train = load_data(asked.data).train
        images = preprocess_split(train, artifact.public.preprocessing, np.arange(min(300, len(train))))
        artifact = tightened(asked.artifact, asked.out, images, asked.tight)
    tell = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    tests = range(asked.skip, asked.skip + asked.tests)
    report = run(artifact, asked.data, asked.other, asked.each, tests, asked.shared, tell)
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    sys.exit(1 if report["wrong_not_flagged"] else 0)


if __name__ == "__main__":
    main()
