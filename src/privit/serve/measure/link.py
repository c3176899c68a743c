"""What a whole program between real processes takes, over what its operations take alone in one process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privit.artifact import Preprocessing, Public, save_artifact
from privit.cost.network import LOOPBACK, Network
from privit.cost.spu.predict import query_cost
from privit.cost.spu.table import Cost, Table, fit_error
from privit.operators import TABLE
from privit.plan import Plan, plan_from_counts, plan_from_ids, uniform_plan
from privit.serve.measure.bench import random_image, random_weights
from privit.serve.measure.seconds import fit_seconds
from privit.serve.measure.sessions import measure_queries
from privit.spec import KINDS, Granularity, Spec, sites, vit_spec

DELAYS_MS = (20.0, 60.0)
REPEATS = 4
DELAYED_REPEATS = 2
VARIANCE = {"variance_low": 0.2, "variance_high": 3.0}
SCORES = {"drop": 3.0, "peak": 4.0, "mean_exp": 2.0}
Subject = tuple[Spec, Plan, dict[str, float]]


def measure_link(table: Table) -> Table:
    """The table with what running between processes adds, fitted on models of its own."""
    delays = [(Network(delay), DELAYED_REPEATS) for delay in DELAYS_MS]
    found = [_measured(subject, table, [] if i else delays) for i, subject in enumerate(subjects())]
    return fit_link(table, found)


def fit_link(table: Table, found: Sequence[Mapping[str, Any]]) -> Table:
    """The table with coefficients from such measurements.

    A query between processes takes its operations alone and its send actions, each times a coefficient of at
    least zero, fitted by relative error. The number of operations and the bytes as further terms predicted a
    model left out of the fit no better. Queries over two delays differ by the delay alone, whatever they
    compute: that is the slope.
    """
    features = [(float(f["alone"]), float(f["rounds"])) for f in found]
    seconds = [float(f["seconds"]) for f in found]
    factor, action_seconds = (float(f"{c:.4g}") for c in fit_seconds(features, seconds))
    one_way = (DELAYS_MS[1] - DELAYS_MS[0]) / 2e3
    near, far = found[0]["delayed"]
    error = fit_error((factor, action_seconds), features, seconds)
    return replace(
        table,
        slope=round((far - near) / (found[0]["rounds"] * one_way), 3),
        program_factor=factor,
        action_seconds=action_seconds,
        machine={**table.machine, "between_processes": list(found), "between_processes_error": error},
    )


def subjects() -> Iterator[Subject]:
    """Models and plans from many actions for what is computed to few, from short programs to long ones."""
    small = vit_spec(8, 4, 16, 2, 2, classes=3, channels=1)
    middle = vit_spec(16, 4, 48, 2, 3, classes=3, channels=1)
    short = vit_spec(24, 4, 96, 1, 3, classes=3, channels=1)
    for spec in (small, middle, short):
        yield spec, _kept(spec, 1, 1), {}
    deep, wide = vit_spec(24, 4, 64, 3, 2, classes=5), vit_spec(16, 4, 128, 2, 4, classes=5)
    large = vit_spec(64, 8, 192, 2, 3, classes=5)
    yield deep, _kept(deep, 4, 8), _ranges(deep)
    yield wide, uniform_plan(wide), {}
    yield wide, _kept(wide, 5, 20), {}
    yield large, _kept(large, 6, 10), _ranges(large)
    yield large, _kept(large, 0, 0), _ranges(large)
    long = vit_spec(12, 4, 32, 6, 2, classes=5, channels=1)
    yield long, _kept(long, 2, 6), _ranges(long)
    yield long, _every_operator(long), {}
    yield deep, uniform_plan(deep), {}


def _kept(spec: Spec, tokens: int, rows: int) -> Plan:
    return plan_from_counts(spec, [tokens] * spec.depth, [rows] * spec.depth)


def _every_operator(spec: Spec) -> Plan:
    """Every operator of the table somewhere, in turn."""
    ids = {kind: [entry.id for entry in TABLE if entry.kind == kind] for kind in KINDS}
    shapes = sites(spec, Granularity())
    return plan_from_ids(
        Granularity(), {kind: [np.resize(ids[kind], shape) for shape in shapes[kind]] for kind in KINDS}
    )


def _ranges(spec: Spec) -> dict[str, float]:
    """Public ranges as a trained model has them, which shorten exp, reciprocal and rsqrt."""
    norms = [f"blocks.{layer}.norm{n}" for layer in range(spec.depth) for n in (1, 2)] + ["norm"]
    softmaxes = [f"blocks.{layer}.softmax" for layer in range(spec.depth)]
    found = {f"{norm}.{name}": value for norm in norms for name, value in VARIANCE.items()}
    return found | {f"{softmax}.{name}": value for softmax in softmaxes for name, value in SCORES.items()}


def _measured(subject: Subject, table: Table, delays: list[tuple[Network, int]]) -> dict[str, Any]:
    """One model's query: what its operations take alone, and the least seconds between processes."""
    spec, plan, ranges = subject
    half = (0.5,) * spec.channels
    preprocessing = Preprocessing(spec.image_size, spec.channels, half, half)
    public = Public(spec, preprocessing, tuple(str(i) for i in range(spec.classes)), ranges)
    weights, pixels = random_weights(public, plan, seed=0), random_image(public, seed=0)
    with tempfile.TemporaryDirectory(prefix="privit-link-") as folder:
        save_artifact(Path(folder), public, plan, weights)
        near, *far = measure_queries(Path(folder), table.protocol, [(LOOPBACK, REPEATS), *delays], pixels)
    alone: Cost = query_cost(table, spec, plan, ranges)
    return {
        "alone": round(alone.seconds, 4),
        "rounds": near["rounds"],
        "seconds": round(min(near["query_seconds"]), 4),
        "delayed": [round(min(run["query_seconds"]), 4) for run in far],
    }
