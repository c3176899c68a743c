"""The paper's numbers, against those that the cost model already holds."""

from __future__ import annotations

import pytest
from benchmarks.paper_totals import (
    SCRATCH_GELU_TOKENS,
    SCRATCH_SOFTMAX_ROWS,
    TINY_IMAGENET_GELU_TOKENS,
    TINY_IMAGENET_SOFTMAX_ROWS,
    UNSTATED,
    computable_totals,
)

from privit.report.paper.published import SERIES, data_set, describe, published
from privit.report.paper.published_tables import DEGRADATION, DISTRIBUTIONS, GRID, GRID_SOFTMAX


def test_every_relu_ops_total_is_one_that_the_cost_model_knows():
    known = {total.printed for total in computable_totals()}
    known |= {value for unstated in UNSTATED for value in unstated.printed} | {151.74, 93.71}
    printed = {cost for s in SERIES if s.axis == "relu_ops" for cost, _ in s.printed}
    assert printed <= known
    assert {cost for _, cost, *_ in DEGRADATION} <= known


def test_the_searched_distributions_are_those_that_are_priced():
    found = {(d.name, d.kind): list(d.kept) for d in DISTRIBUTIONS if d.label.startswith("fig:ti_pretrain")}
    assert found == {
        ("PriViT", "gelu"): TINY_IMAGENET_GELU_TOKENS,
        ("PriViT", "softmax"): TINY_IMAGENET_SOFTMAX_ROWS,
        ("no pretraining", "gelu"): SCRATCH_GELU_TOKENS,
        ("no pretraining", "softmax"): SCRATCH_SOFTMAX_ROWS,
    }


def test_distributions_have_the_layers_of_their_model_and_fit_in_them():
    assert all(len(d.kept) == 12 and max(d.kept) <= d.sites for d in DISTRIBUTIONS)


def test_accuracies_are_per_cents_and_the_grid_is_full():
    assert all(50 < accuracy < 100 for series in SERIES for _, accuracy in series.printed)
    assert {len(row) for row in GRID.values()} == {len(GRID_SOFTMAX)}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("cifar10", "cifar10"),
        ("../shared/data/cifar10", "cifar10"),
        ("uoft-cs/cifar100", "cifar100"),
        ("zh-plus/tiny-imagenet/", "tiny-imagenet"),
        ("digits", "digits"),
    ],
)
def test_a_data_set_is_known_by_path_and_by_hub_name(name, known):
    assert data_set(name) == known


def test_points_of_the_same_data_set_are_preferred():
    found, same = published("relu_ops", "", "../data/cifar10")
    assert same
    assert {series.data for series in found} == {"cifar10"}
    assert {series.method for series in found} == {"PriViT-G", "PriViT-R", "MPCViT", "MPCViT+"}


def test_points_of_another_data_set_say_that_they_are():
    found, same = published("relu_ops", "", "digits")
    assert not same
    assert {series.data for series in found} == {"cifar10"}


def test_an_experiment_is_set_beside_the_figure_that_it_repeats():
    found, _ = published("kept_softmax_rows", "fig:C100-softmax-candidatee", "digits")
    assert [series.method for series in found] == ["UniformAttn", "ScaleAttn", "SquaredAttn"]
    assert "fig:C100-softmax-candidatee (cifar100" in describe(found)


def test_printed_millions_become_operations():
    found = [s for s in SERIES if s.label == "tab:tinyimagenet_comparison" and s.method == "PriViT-G"]
    assert found[0].points[0] == pytest.approx((93.72e6, 0.6053))
