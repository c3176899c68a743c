"""Fitted stand-ins come as near to the teacher as least squares allows, and later layers know it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_student import PLAIN, SPEC, error, images, logits, student
from torch.nn import functional

from privit.operators import TABLE
from privit.plan import plan_from_counts
from privit.spec import Granularity
from privit.train.fitting.fit import FitConfig, fit
from privit.train.fitting.moments import (
    POWERS,
    Sums,
    attention_sums,
    bounded_quadratic,
    power_sums,
    static_sums,
)
from privit.train.student.vit import Student, ignore

FITTED = [entry for entry in TABLE if entry.parameters]


def test_every_operator_with_parameters_can_be_fitted() -> None:
    polynomials = [entry for entry in FITTED if entry.family != "static"]
    assert {entry.name: set(entry.parameters) for entry in polynomials} == {
        name: set(powers) for name, powers in POWERS.items()
    }


@pytest.mark.parametrize("entry", FITTED, ids=lambda entry: entry.name)
def test_a_fit_comes_nearer_to_the_teacher_than_the_initial_parameters(entry) -> None:
    start = student(**{entry.kind: entry.name})
    fitted = fit(start, images(), PLAIN)
    assert error(fitted, images()) < 0.98 * error(start, images())
    before = logits(student(**{entry.kind: entry.name}), images())
    assert np.array_equal(logits(start, images()), before, equal_nan=True)


def test_the_first_layer_is_ordinary_least_squares_per_channel() -> None:
    spec = replace(SPEC, blocks=SPEC.blocks[:1])
    fitted = fit(student(spec, gelu="quadratic"), images(), replace(PLAIN, shift_bound=1e6))
    block = fitted.blocks[0]
    with torch.no_grad():
        tokens = fitted.embed(torch.from_numpy(images()))
        tokens = tokens + block.attention(block.norm1(tokens), ignore)
        hidden = block.up(block.norm2(tokens)).flatten(0, 1).double().numpy()
    target = functional.gelu(torch.from_numpy(hidden)).numpy()
    found = [fitted.weights()[f"blocks.0.gelu.quadratic.{name}"] for name in ("q2", "q1", "q0")]
    for channel in range(hidden.shape[1]):
        expected = np.polyfit(hidden[:, channel], target[:, channel], 2)
        np.testing.assert_allclose([p[channel] for p in found], expected, rtol=1e-3, atol=1e-4)


def test_attention_is_fitted_to_what_the_head_passes_on_not_to_its_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 2, 6, 6, generator=generator)
    values = torch.randn(4, 2, 6, 3, generator=generator)
    true = torch.tensor([[0.3, -0.2, 0.1], [0.05, 0.4, 0.2]])
    c2, c1, c0 = (true[:, i].reshape(2, 1, 1) for i in range(3))
    target = (c2 * scores**2 + c1 * scores + c0) @ values
    sums = attention_sums(scores, values, target, torch.ones(4, 2, 6), (2, 1, 0))
    torch.testing.assert_close(sums.solve(torch.zeros(2, 3, 1).double(), 0.0).squeeze(-1).float(), true)


def test_static_weights_are_fitted_to_what_the_head_passes_on_row_by_row() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(8, 2, 6, 3, generator=generator)
    true = torch.randn(2, 6, 6, generator=generator)
    solution = static_sums(values, true @ values).solve(torch.zeros(2, 6, 6).double(), 0.0)
    torch.testing.assert_close(solution.mT.float(), true, rtol=1e-4, atol=1e-4)


def test_sums_over_parts_are_the_sums_over_the_whole() -> None:
    x, y = torch.randn(2, 60, 5, generator=torch.Generator().manual_seed(0)).unbind(0)
    weight = torch.linspace(0.5, 1.5, 60).unsqueeze(1)
    whole = power_sums(x, y, weight, (2, 1, 0))
    parts = power_sums(x[:25], y[:25], weight[:25], (2, 1, 0)) + power_sums(
        x[25:], y[25:], weight[25:], (2, 1, 0)
    )
    torch.testing.assert_close(whole.gram, parts.gram, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(whole.right, parts.right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bound", [0.5, 4.0, 16.0])
def test_no_fitted_quadratic_has_its_vertex_beyond_the_bound(bound: float) -> None:
    x = torch.linspace(-1, 1, 200).unsqueeze(1) + torch.tensor([[0.0, 3.0, -3.0, 0.1]])
    y = torch.stack([x[:, 0], functional.gelu(x[:, 1]), -x[:, 2], functional.gelu(x[:, 3])], 1)
    sums = power_sums(x, y, torch.ones(200, 1), (2, 1, 0))
    prior = torch.tensor([0.2, 0.5, 0.1]).double().reshape(1, 3, 1).expand(4, 3, 1)
    found = bounded_quadratic(sums, prior, 1e-9, bound)
    shift = found[:, 1] / (2 * found[:, 0])
    assert bool((shift.abs() <= bound * (1 + 1e-6)).all())


def test_a_quadratic_on_the_bound_is_the_best_one_there() -> None:
    x = torch.linspace(-2, 2, 101).unsqueeze(1)
    sums = power_sums(x, 0.7 * x + 0.1, torch.ones(101, 1), (2, 1, 0))
    prior = torch.zeros(1, 3, 1).double()
    best = sums.misfit(bounded_quadratic(sums, prior, 0.0, 3.0).unsqueeze(-1)).item()
    for q2 in np.linspace(-0.5, 0.5, 41):
        for q1 in np.linspace(-6 * abs(q2), 6 * abs(q2), 41):
            rest = torch.tensor([q2, q1, 0.1 - q2 * float((x**2).mean())]).double().reshape(1, 3, 1)
            assert sums.misfit(rest).item() >= best - 1e-6


def test_ridge_gives_a_dead_channel_its_initial_parameters() -> None:
    dead = Sums(torch.zeros(1, 3, 3).double(), torch.zeros(1, 3, 1).double())
    prior = torch.tensor([0.2, 0.5, 0.1]).double().reshape(1, 3, 1)
    torch.testing.assert_close(dead.solve(prior, 1e-6), prior)


def test_later_layers_are_fitted_on_what_replaced_layers_produce() -> None:
    planned = student(gelu="quadratic")
    own = fit(planned, images(), PLAIN)
    switched = Student(SPEC, stand_in={"gelu": "quadratic"})
    switched.load_weights({n: w for n, w in planned.weights().items() if ".gelu." not in n})
    untouched = fit(switched, images(), PLAIN)
    first, last = ("blocks.0.gelu.quadratic.q2", f"blocks.{SPEC.depth - 1}.gelu.quadratic.q2")
    np.testing.assert_allclose(own.weights()[first], untouched.weights()[first], rtol=1e-4, atol=1e-6)
    assert not np.allclose(own.weights()[last], untouched.weights()[last], rtol=1e-3)


@pytest.mark.parametrize(("gelu", "softmax"), [("quadratic", "softmax"), ("gelu", "quadratic_attn")])
def test_refitting_the_linear_layer_behind_brings_the_student_nearer(gelu: str, softmax: str) -> None:
    planned = student(gelu=gelu, softmax=softmax)
    pixels = images(128)
    without = error(fit(planned, pixels, PLAIN), pixels)
    assert error(fit(planned, pixels, replace(PLAIN, refit=True, refit_ridge=1e-3)), pixels) < without


def test_an_exact_student_stays_as_it_is() -> None:
    untouched = student()
    fitted = fit(untouched, images(), FitConfig())
    for name, weight in untouched.weights().items():
        assert np.array_equal(fitted.weights()[name], weight)


def test_the_same_seed_gives_the_same_bits_and_batches_do_not_matter() -> None:
    planned = student(gelu="quadratic", softmax="quadratic_attn")
    first, second = (fit(planned, images(), FitConfig(seed=3)).weights() for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    config = FitConfig(weighting="uniform")
    whole = fit(planned, images(), replace(config, batch_size=48)).weights()
    parts = fit(planned, images(), replace(config, batch_size=7)).weights()
    for name in whole:
        np.testing.assert_allclose(whole[name], parts[name], rtol=2e-2, atol=2e-3)


def test_shared_parameters_are_equal_within_a_layer() -> None:
    config = replace(PLAIN, shared=True)
    fitted = fit(student(gelu="quadratic", softmax="quadratic_attn"), images(), config).weights()
    for name, value in fitted.items():
        if ".quadratic" in name:
            assert len(np.unique(value)) == 1


@pytest.mark.parametrize(
    "granularity",
    [Granularity("token", "row"), Granularity("element", "head"), Granularity("layer", "layer")],
    ids=lambda g: f"{g.gelu}-{g.softmax}",
)
def test_every_granularity_can_be_fitted(granularity: Granularity) -> None:
    planned = student(gelu="affine", softmax="linear_attn", granularity=granularity)
    assert error(fit(planned, images(), PLAIN), images()) < error(planned, images())


def test_only_the_sites_where_an_operator_stands_are_looked_at() -> None:
    stand_in = {"gelu": "quadratic", "softmax": "quadratic_attn"}
    counts = [SPEC.tokens // 2] * SPEC.depth
    plan = plan_from_counts(SPEC, counts, [2 * n for n in counts], seed=4, stand_in=stand_in)
    mixed = student()
    mixed.set_plan(plan)
    fitted = fit(mixed, images(), PLAIN)
    everywhere = fit(student(gelu="quadratic", softmax="quadratic_attn"), images(), PLAIN)
    assert error(fitted, images()) < error(everywhere, images())


def test_a_weighting_by_gradient_counts_only_the_class_token_more_in_the_last_layer() -> None:
    from privit.train.fitting.sensitivity import token_weights

    model = student().requires_grad_(False)
    weights = token_weights(model, torch.from_numpy(images()), 16, 0)
    last = weights["gelu"][-1]
    assert last[0] > 0.5 + SPEC.tokens / 2 - 1e-3
    torch.testing.assert_close(last[1:], torch.full_like(last[1:], 0.5))
    for layers in weights.values():
        for layer in layers:
            assert layer.mean().item() == pytest.approx(1.0, rel=1e-4)


def test_wrong_settings_are_named() -> None:
    found = FitConfig(images=0, ridge=-1.0).problems()
    assert found == ["images is 0, not above zero", "ridge is -1.0, below zero"]
