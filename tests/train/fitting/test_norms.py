"""What stands at LayerNorms is fitted by least squares, on the student's own tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_student import PLAIN, SPEC, error, images, logits, student

from privit.operators import BY_NAME
from privit.plan import plan_from_ids, uniform_plan
from privit.spec import KINDS, Granularity, with_tokens
from privit.train.fitting.fit import FitConfig, fit
from privit.train.fitting.norms import norm_sums, set_norm
from privit.train.student.norms import NormSites, Stream
from privit.train.student.vit import Student

NORMS = [entry for entry in BY_NAME.values() if entry.kind == "norm" and entry.parameters]


def make_sites(name: str, classes: bool = False) -> NormSites:
    made = NormSites((2, 2) if classes else (2,), False, True, 1e-6, "layer_norm", name)
    made.freeze(np.full(made.shape, BY_NAME[name].id))
    return made.requires_grad_(False)


def make_stream() -> Stream:
    generator = torch.Generator().manual_seed(0)
    sizes = 0.5 + torch.rand(6, 5, 1, generator=generator)
    tokens = sizes * torch.randn(6, 5, 16, generator=generator)
    return Stream(tokens, 1 / sizes)


@pytest.mark.parametrize("entry", NORMS, ids=lambda entry: entry.name)
def test_scalars_are_ordinary_least_squares_in_which_a_token_counts_by_its_variance(entry) -> None:
    layer, stream = make_sites(entry.name), make_stream()
    weight = torch.rand(6, 5, generator=torch.Generator().manual_seed(1))
    set_norm(layer, 1, entry, norm_sums(layer, 1, entry, stream, weight), ridge=0.0)
    variance = stream.tokens.double().var(dim=-1, correction=0).numpy().ravel()
    carried = stream.factor.double().numpy().ravel()
    ones = np.ones_like(variance)
    features = {"reused": [carried], "linear": [variance, ones], "constant": [ones]}[entry.family]
    root = np.sqrt(weight.numpy().ravel() * variance)
    target = root / np.sqrt(variance + 1e-6)
    expected, *_ = np.linalg.lstsq(root[:, None] * np.stack(features, axis=1), target, rcond=None)
    found = [float(getattr(layer, entry.name)[name][1]) for name in entry.parameters]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    # The other place keeps what it had.
    first = next(iter(entry.initial))
    assert float(getattr(layer, entry.name)[first][0]) == entry.initial[first]


def test_class_token_and_patches_have_scalars_of_their_own() -> None:
    layer, stream, entry = make_sites("fixed_norm", classes=True), make_stream(), BY_NAME["fixed_norm"]
    weight = torch.ones(6, 5)
    set_norm(layer, 0, entry, norm_sums(layer, 0, entry, stream, weight), ridge=0.0)
    alone = make_sites("fixed_norm")
    for column, rows in enumerate((slice(0, 1), slice(1, None))):
        part = Stream(stream.tokens[:, rows], stream.factor[:, rows])
        set_norm(alone, 0, entry, norm_sums(alone, 0, entry, part, weight[:, rows]), ridge=0.0)
        found, expected = layer.fixed_norm["s"][0, column], alone.fixed_norm["s"][0]
        assert float(found) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("granularity", [Granularity(), Granularity(norm="class")], ids=["layer", "class"])
@pytest.mark.parametrize("entry", NORMS, ids=lambda entry: entry.name)
def test_a_fit_comes_nearer_to_the_teacher_than_the_initial_scalars(entry, granularity: Granularity) -> None:
    start = student(norm=entry.name, granularity=granularity)
    assert error(fit(start, images(), PLAIN), images()) < 0.98 * error(start, images())


def test_a_reused_norm_that_is_exactly_proportional_is_found() -> None:
    """Without anything between two LayerNorms, the second one's factor is the first one's."""
    made = student(norm="reused_norm")
    with torch.no_grad():
        made.blocks[0].out.weight.zero_()
        made.blocks[0].out.bias.zero_()
    fitted = fit(made, images(), PLAIN)
    assert float(fitted.blocks[0].norm.reused_norm["s"][1]) == pytest.approx(1.0, rel=1e-5)


def test_every_norm_is_fitted_while_there_are_switches() -> None:
    switched = Student(SPEC, stand_in={"norm": "linear_norm"}, kinds=KINDS)
    switched.load_weights(student().weights())
    before = switched.weights()
    after = fit(switched, images(), PLAIN).weights()
    names = [name for name in after if ".norm.linear_norm." in name]
    assert len(names) == 2 * SPEC.depth
    assert all((before[name] != after[name]).all() for name in names)


def test_a_pooled_student_is_fitted_to_the_teacher_that_keeps_every_patch() -> None:
    spec = with_tokens(SPEC, [17, 5, 5])
    plan = uniform_plan(spec, "quadratic", norm="reused_norm")
    pooled = Student(spec)
    pooled.set_plan(plan)
    pooled.load_weights(student().weights())
    for config in (PLAIN, FitConfig()):
        fitted = fit(pooled, images(), config, student())
        assert np.isfinite(logits(fitted, images())).all()
        assert error(fitted, images()) < error(pooled, images())


def test_a_plan_of_several_norm_operators_is_fitted_where_each_stands() -> None:
    layers = {kind: list(ids) for kind, ids in uniform_plan(SPEC).layers.items()}
    layers["norm"] = [np.array([32, 33]), np.array([34, 35]), np.array([33, 32, 34])]
    made = Student(SPEC)
    made.set_plan(plan_from_ids(Granularity(), layers))
    made.load_weights(student().weights())
    fitted = fit(made, images(), FitConfig())
    assert error(fitted, images()) < error(made, images())
    # No site of another operator was touched.
    assert float(fitted.blocks[1].norm.linear_norm["a"][1]) == 1.5
