"""What an export still has to find out about the program: its guard's bounds, its error, what breaks it.

Bounds come from images like those that will be asked about, and are as wide as the certificate
(`program/certificate.py`) allows. Then the compiled program is run in the engine's own arithmetic, on such
images and on odd ones: noise, flat, inverted and shuffled.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from privit.artifact import Artifact, Public, load_artifact, save_artifact
from privit.errors import RequestError
from privit.plan import Plan
from privit.program.certificate import Certificate, certify
from privit.program.choices import Rewrites
from privit.program.graph import Graph
from privit.program.ranges import (
    GUARD,
    WATCHED_MARGINS,
    RangeRecorder,
    score_keys,
    score_range,
    unwatched,
    variance_keys,
    variance_range,
)
from privit.serve.compile.compile import PATCHES, client_values, server_values
from privit.serve.engine.reference import reference_answers
from privit.serve.measure.odd import odd_images
from privit.serve.model.forward import forward
from privit.spec import Spec

Student = Callable[[np.ndarray], np.ndarray]
"""Preprocessed images (n, C, S, S) to the logits (n, classes) of the model that was trained."""
Progress = Callable[[str], None]

MARGINS = (64.0, 32.0, 16.0, 8.0, 4.0, 2.0)
"""By how much the bound of a sum of squares exceeds what images showed: the widest proven one is taken."""
ENOUGH_IMAGES = 200
"""Fewer tell too little about the next one: then the engine's own functions run, which take any range."""
WATCHED_IMAGES = 500
ERROR_IMAGES = 100
ERROR_MARGIN = 2.0
"""How much larger than on any image tried the error of a logit is taken to be."""
STRANGE = 4.0
"""An odd image may add to the error up to this many times that of good ones; beyond, its answer is wrong."""
BATCH = 16
SUMS = (".squares", ".squared")


@dataclass(frozen=True)
class Tried:
    """What trying an exported program showed.

    left: for each kind of odd image, the ranges that such images leave.
    unproven: places of which the certificate cannot show that they never wrap unseen.
    dropped: ranges that are not used, because odd images leave them and no guard would see it, or because
        they come from too few images.
    """

    images: int
    logit_error: float
    outside: int
    left: Mapping[str, tuple[str, ...]]
    unproven: tuple[str, ...]
    dropped: tuple[str, ...]
    unseen: int


def finish_export(
    folder: Path,
    images: np.ndarray,
    student: Student,
    guard: bool = True,
    progress: Progress | None = None,
    enough: int = ENOUGH_IMAGES,
) -> tuple[Artifact, Tried]:
    """The artifact in `folder` with its guard and its error; unguarded, short forms that break are dropped.

    `images` (n, C, S, S) are those that the ranges were measured on; `student` is what must be equalled.
    """
    tell = progress or (lambda _: None)
    artifact = load_artifact(folder)
    weights, measured = artifact.weights, artifact.public
    if weights is None:
        raise RequestError(f"{folder} holds no weights", "finish the export of a whole artifact")
    margins = WATCHED_MARGINS if guard else {}
    artifact = replace(artifact, public=replace(measured, ranges=unwatched(measured.ranges) | margins))
    tell("measuring what the guard watches")
    odd = odd_images(artifact.public.preprocessing, images)
    left = {kind: left_ranges(artifact, found) for kind, found in odd.items()}
    every = tuple(dict.fromkeys(name for names in left.values() for name in names))
    dropped = places(artifact.spec) if len(images) < enough else () if guard else every
    public = without(replace(artifact.public, guard=guard), dropped)
    unproven: tuple[str, ...] = ()
    if guard:
        some = images[_spread(len(images), WATCHED_IMAGES)]
        public, certificate = with_bounds(public, artifact.plan, weights, some)
        unproven = tuple(str(reach) for reach in certificate.open_places)
    tell("trying the program in the engine's arithmetic")
    error, outside, unseen = _try_out(replace(artifact, public=public), images, odd, student)
    if unseen and every and not dropped:
        # The guard lets an answer pass that is wrong: then no short form may depend on it.
        dropped, public = every, without(public, every)
        error, outside, unseen = _try_out(replace(artifact, public=public), images, odd, student)
    public = replace(public, logit_error=error)
    count = min(len(images), ERROR_IMAGES) + sum(map(len, odd.values()))
    tried = Tried(count, error, outside, left, unproven, dropped, unseen)
    return _replaced(folder, replace(artifact, public=public)), tried


def with_bounds(
    public: Public, plan: Plan, weights: Mapping[str, np.ndarray], images: np.ndarray
) -> tuple[Public, Certificate]:
    """The public part with a bound for every sum of squares, as wide as the certificate allows."""
    public = replace(public, guard=True, ranges=_without_bounds(public.ranges))
    seen = watched(public, plan, weights, images)
    pixel = public.preprocessing.largest_pixel
    values = server_values(public, plan, weights)
    for margin in MARGINS:
        bounds = {name: margin * high for name, (_, high) in seen.items() if name.endswith(SUMS)}
        found = replace(public, ranges=public.ranges | bounds)
        certificate = certify(Graph.of(found, plan), values, pixel)
        deep = [reach.place for reach in certificate.open_places if reach.place.endswith("(depth)")]
        if deep:
            layers = {place.split(".heads.")[0] for place in deep}
            depths = {name: seen[name][1] for name in (f"{GUARD}{layer}.depth" for layer in layers)}
            found = replace(found, ranges=found.ranges | depths)
            certificate = certify(Graph.of(found, plan), values, pixel)
        if not certificate.open_places:
            break
    return found, certificate


def _without_bounds(ranges: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in ranges.items() if not name.startswith(GUARD)}


def watched(
    public: Public, plan: Plan, weights: Mapping[str, np.ndarray], images: np.ndarray
) -> dict[str, tuple[float, float]]:
    """The smallest and largest value of everything that a guard could watch, over images in the clear."""
    graph = Graph.of(public, plan)

    def extremes(found: Mapping[str, jax.Array]) -> dict[str, tuple[jax.Array, jax.Array]]:
        return {n: (jnp.min(v), jnp.max(v)) for n, v in found.items() if n.startswith(GUARD)}

    parts = _observed(graph, public, plan, weights, images, extremes)
    return {
        name: (float(np.min([p[name][0] for p in parts])), float(np.max([p[name][1] for p in parts])))
        for name in parts[0]
    }


def left_ranges(artifact: Artifact, images: np.ndarray) -> tuple[str, ...]:
    """The LayerNorms and softmax layers with a public range that some of these images leave."""
    assert artifact.weights is not None
    public, spec = artifact.public, artifact.spec
    graph = Graph.of(public, artifact.plan, Rewrites(ranges=False))
    found = _observed(graph, public, artifact.plan, artifact.weights, images, lambda seen: dict(seen))
    recorder = RangeRecorder()
    for part in found:
        for name, value in part.items():
            recorder(name, value)
    left = []
    for norm in (place for place in places(spec) if not place.endswith(".softmax")):
        known, (low, high) = variance_range(public.ranges, norm), variance_keys(norm)
        if known and not (known.low <= recorder.ranges[low] and recorder.ranges[high] <= known.high):
            left.append(norm)
    for layer in range(spec.depth):
        scores, keys = score_range(public.ranges, layer), score_keys(f"blocks.{layer}")
        if scores is None or keys.drop not in recorder.ranges:
            continue
        drop, peak, mean_exp = (recorder.ranges[key] for key in keys)
        if -drop < scores.low or peak > scores.high or mean_exp > scores.mean_exp:
            left.append(f"blocks.{layer}.softmax")
    return tuple(left)


def places(spec: Spec) -> tuple[str, ...]:
    """Every LayerNorm and softmax layer, whose public ranges allow short forms."""
    found = [f"blocks.{i}.{name}" for i in range(spec.depth) for name in ("norm1", "softmax", "norm2")]
    return (*found, "norm")


def _spread(count: int, wanted: int) -> np.ndarray:
    """At most `wanted` numbers below `count`, evenly spread."""
    return np.linspace(0, count - 1, min(count, wanted)).astype(int)


def without(public: Public, places: tuple[str, ...]) -> Public:
    """The public part without the ranges of these LayerNorms and softmax layers."""
    keys = {
        key
        for place in places
        for key in (
            score_keys(place.removesuffix(".softmax")) if place.endswith(".softmax") else variance_keys(place)
        )
    }
    return replace(public, ranges={name: value for name, value in public.ranges.items() if name not in keys})


def _observed(
    graph: Graph,
    public: Public,
    plan: Plan,
    weights: Mapping[str, np.ndarray],
    images: np.ndarray,
    reduce: Callable[[Mapping[str, jax.Array]], Any],
) -> list[Any]:
    """What `reduce` makes of the values that pass, batch by batch, each value with the batch in front."""
    values = server_values(public, plan, weights, graph.rewrites)

    def seen(patches: jax.Array) -> dict[str, jax.Array]:
        found: dict[str, list[jax.Array]] = {}
        forward(graph, values | {PATCHES: patches}, lambda n, v: found.setdefault(n, []).append(v))
        return {name: jnp.concatenate(parts, axis=0) for name, parts in found.items()}

    run = jax.jit(lambda patches: reduce(jax.vmap(seen)(patches)))
    patches = np.stack([client_values(public, image)[PATCHES] for image in images])
    size = min(BATCH, len(patches))
    # Every batch has the same shape; the last one is filled with images seen before.
    starts = [min(start, len(patches) - size) for start in range(0, len(patches), size)]
    return [jax.tree.map(np.asarray, run(patches[start : start + size])) for start in starts]


def _try_out(
    artifact: Artifact, images: np.ndarray, odd: Mapping[str, np.ndarray], student: Student
) -> tuple[float, int, int]:
    """Error of a logit with its margin, images outside, and odd images that are wrong and not seen to be."""
    chosen = images[_spread(len(images), ERROR_IMAGES)]
    strange = np.concatenate(list(odd.values()))
    every, classes = reference_answers(artifact, np.concatenate([chosen, strange])), artifact.spec.classes
    errors, flags = [], []
    for given, answers in ((chosen, every[: len(chosen)]), (strange, every[len(chosen) :])):
        errors.append(np.abs(answers[:, :classes] - student(given)).max(axis=1))
        flags.append(answers[:, classes] < 0.5 if artifact.public.guard else np.zeros(len(given), bool))
    good, strange_error = (float(e[~f].max(initial=0.0)) for e, f in zip(errors, flags, strict=True))
    error = ERROR_MARGIN * max(good, min(strange_error, STRANGE * good))
    unseen = int(((errors[1] > error) & ~flags[1]).sum()) if artifact.public.guard else 0
    return error, int(flags[0].sum()), unseen


def _replaced(folder: Path, artifact: Artifact) -> Artifact:
    assert artifact.weights is not None
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as staging:
        save_artifact(Path(staging) / "artifact", artifact.public, artifact.plan, artifact.weights)
        shutil.rmtree(folder)
        (Path(staging) / "artifact").rename(folder)
    return load_artifact(folder)
