"""An export is tried out: bounds of the guard, the error of a logit, and what odd images break."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from graphs import mixed_plan, public_of, small_spec, weights_of

from privit.artifact import Artifact, Preprocessing, load_artifact, save_artifact
from privit.program.graph import Graph
from privit.program.ranges import WATCHED_MARGINS, unwatched, variance_keys
from privit.serve.compile.compile import client_values, server_values
from privit.serve.measure.bench import measured_ranges
from privit.serve.measure.evaluate import evaluate
from privit.serve.measure.exported import Student, finish_export, left_ranges, with_bounds, without
from privit.serve.measure.odd import odd_images
from privit.serve.model.forward import forward

SPEC = small_spec()
PLAN = mixed_plan(SPEC)
IMAGES = np.random.default_rng(0).uniform(0.3, 0.7, (6, 1, 8, 8)).astype(np.float32)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An artifact whose ranges are those of a few alike images, so that odd ones leave them."""
    weights = weights_of(SPEC, PLAN)
    public = replace(public_of(SPEC), preprocessing=Preprocessing(8, 1, (0.0,), (1.0,)))
    public = replace(public, ranges=measured_ranges(public, PLAN, weights, IMAGES[0]))
    save_artifact(tmp_path / "out", public, PLAN, weights)
    return tmp_path / "out"


def student_of(artifact: Artifact) -> Student:
    """The model with the engine's own functions, in the clear: what a torch student would say."""
    assert artifact.weights is not None
    public = replace(artifact.public, ranges={}, guard=False)
    values = server_values(public, artifact.plan, artifact.weights)
    graph = Graph.of(public, artifact.plan)
    run = jax.jit(lambda patches: forward(graph, values | patches))
    return lambda images: np.stack([np.asarray(run(client_values(public, image))) for image in images])


def test_an_export_gets_a_guard_and_an_error(exported: Path) -> None:
    artifact = load_artifact(exported)
    finished, tried = finish_export(exported, IMAGES, student_of(artifact), enough=len(IMAGES))
    assert finished.public.guard
    assert load_artifact(exported / "client").public == finished.public
    assert 0 < tried.logit_error == finished.public.logit_error < 0.5
    assert tried.unseen == 0
    assert "guard.blocks.0.squares" in finished.public.ranges
    assert any(tried.left.values()), "no odd image left a range: the test shows nothing"
    assert tried.dropped == ()


def test_without_a_guard_a_short_form_that_odd_images_break_is_dropped(exported: Path) -> None:
    artifact = load_artifact(exported)
    finished, tried = finish_export(exported, IMAGES, student_of(artifact), guard=False, enough=len(IMAGES))
    odd = np.concatenate(list(odd_images(artifact.public.preprocessing, IMAGES).values()))
    assert not finished.public.guard
    assert tried.dropped
    assert left_ranges(artifact, odd)
    assert left_ranges(finished, odd) == ()


def test_only_a_guarded_program_has_narrow_margins(exported: Path) -> None:
    artifact = load_artifact(exported)
    assert artifact.weights is not None
    measured = replace(artifact.public, ranges=artifact.public.ranges | WATCHED_MARGINS)
    save_artifact(exported, measured, PLAN, artifact.weights)
    guarded, _ = finish_export(exported, IMAGES, student_of(artifact), enough=len(IMAGES))
    assert guarded.public.ranges.items() >= WATCHED_MARGINS.items()
    open_, _ = finish_export(exported, IMAGES, student_of(artifact), guard=False, enough=len(IMAGES))
    assert open_.public.ranges == unwatched(open_.public.ranges)


def test_too_few_images_give_a_program_of_generic_functions(exported: Path) -> None:
    artifact = load_artifact(exported)
    finished, tried = finish_export(exported, IMAGES, student_of(artifact))
    graph = Graph.of(finished.public, PLAN)
    assert tried.dropped
    assert graph.root("norm") is None
    assert graph.scores(0) is None


def test_dropping_a_range_leaves_the_others() -> None:
    ranges = {key: 1.0 for norm in ("norm", "blocks.0.norm1") for key in variance_keys(norm)}
    public = replace(public_of(SPEC), ranges=ranges)
    assert set(without(public, ("norm",)).ranges) == set(variance_keys("blocks.0.norm1"))


def test_bounds_are_as_wide_as_is_proven(exported: Path) -> None:
    artifact = load_artifact(exported)
    assert artifact.weights is not None
    public, certificate = with_bounds(artifact.public, PLAN, artifact.weights, IMAGES)
    assert certificate.open_places == []
    assert public.ranges["guard.blocks.0.squares"] > 0


def test_an_evaluation_counts_what_is_flagged(exported: Path) -> None:
    artifact = load_artifact(exported)
    assert artifact.weights is not None
    assert evaluate(exported, data="digits", images=4)["flagged"] is None
    save_artifact(exported, replace(artifact.public, guard=True), PLAN, artifact.weights)
    assert evaluate(exported, data="digits", images=4)["flagged"] in range(5)
