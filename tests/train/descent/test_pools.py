"""Which pool a budget is spent with: foreseen for all candidates, measured for those that promise most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privit.cost.budgets.budget import spend
from privit.cost.budgets.price import Price
from privit.cost.budgets.pricing import Pricer
from privit.errors import BudgetError
from privit.plan import load_plan, uniform_plan
from privit.runs import load_run
from privit.spec import Granularity, sites, vit_spec, with_tokens
from privit.train.descent.pools import candidates, pooled_losses, smallest_floor
from privit.train.fitting.fit import FitConfig
from privit.train.fixed_point.ranges import measure_ranges
from privit.train.stages import read_model
from privit.train.training_free import TrainingFreeConfig, _fit_pixels, search_without_training

SPEC = vit_spec(image_size=12, patch_size=4, width=8, depth=3, heads=2, classes=3)


def test_candidates_are_the_model_as_it_is_and_every_smaller_grid_before_every_later_block() -> None:
    found = list(candidates(SPEC))
    assert found[0] == (10, 10, 10)
    assert sorted(found[1:]) == [(10, 2, 2), (10, 5, 5), (10, 10, 2), (10, 10, 5)]
    pooled = list(candidates(with_tokens(SPEC, [10, 5, 5])))
    assert pooled == [(10, 5, 5), (10, 2, 2), (10, 5, 2)]


def test_the_losses_of_patches_that_are_mixed_are_added_up_and_the_class_token_keeps_its_own() -> None:
    pooled, rng = with_tokens(SPEC, [10, 10, 5]), np.random.default_rng(0)
    shapes = sites(SPEC, Granularity())
    losses = {kind: [rng.uniform(size=(2, *s)) for s in shapes[kind]] for kind in shapes}
    found = pooled_losses(SPEC, pooled, Granularity(), losses)
    for kind, layers in sites(pooled, Granularity()).items():
        assert [layer.shape[1:] for layer in found[kind]] == layers
        for before, after in zip(losses[kind], found[kind], strict=True):
            assert after.sum() == pytest.approx(before.sum())
    np.testing.assert_allclose(found["softmax"][2][:, :, 0], losses["softmax"][2][:, :, 0])
    assert found["gelu"][1] is losses["gelu"][1]


def test_a_budget_that_every_candidate_breaks_is_refused_with_the_cheapest_ones_words() -> None:
    def refuse(spec: object) -> None:
        raise BudgetError(f"{[block.pool for block in spec.blocks]}")  # type: ignore[attr-defined]

    with pytest.raises(BudgetError, match=r"\[0, 1, 0\]"):
        smallest_floor(SPEC, refuse)


@pytest.mark.parametrize("unit", ["bytes", "relu_ops"])
def test_a_budget_below_the_floor_of_the_whole_model_is_met_with_a_pool(
    teacher_run: Path, tmp_path: Path, unit: str
) -> None:
    price = Price(unit, "semi2k-benchmark")  # type: ignore[arg-type]
    teacher = read_model(load_run(teacher_run))
    config = TrainingFreeConfig(price=price, choose_tokens=True, fit=FitConfig(images=64), score_images=32)
    config = replace(config, stand_in={"gelu": "affine", "softmax": "constant_attn", "norm": "layer_norm"})
    with pytest.raises(BudgetError, match="all cheap costs"):
        search_without_training(teacher_run, tmp_path / "small", replace(config, budgets=(spend(10),)))
    assert not (tmp_path / "small").exists()
    pixels = _fit_pixels(teacher, teacher.subject.load(), config.fit)
    ranges = measure_ranges(teacher.student(), pixels)
    costs = {
        tokens: Pricer(spec, price, ranges).cost(uniform_plan(spec, "affine", "constant_attn"))
        for tokens in candidates(teacher.subject.spec)
        for spec in [with_tokens(teacher.subject.spec, tokens)]
    }
    whole, least = costs.pop((5, 5)), min(costs.values())
    assert least < whole
    budget = (least + whole) / 2
    result = search_without_training(teacher_run, tmp_path / "run", replace(config, budgets=(spend(budget),)))
    assert result["predicted_cost"] <= budget
    assert tuple(result["tokens"]) in costs
    assert all(each["cost"] <= budget for each in result["tokens_tried"])
    measured = [each["measured"] for each in result["tokens_tried"] if each["measured"] is not None]
    assert measured == sorted(measured)
    found = read_model(load_run(tmp_path / "run"))
    assert [found.subject.spec.tokens_in(i) for i in range(2)] == result["tokens"]
    assert load_plan(tmp_path / "run" / "plan.safetensors").hash() == found.plan.hash()
