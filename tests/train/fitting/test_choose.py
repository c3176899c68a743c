"""Plans without training keep what costs most to replace, and their runs are runs like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import FINETUNE, GELU_SITES, SEARCH, SOFTMAX_SITES

from privit.cost.budgets.budget import Budget, keep
from privit.errors import BudgetError, RequestError
from privit.runs import load_run, read_arrays
from privit.spec import PAPER_KINDS, Granularity, vit_spec
from privit.train.finetune import finetune
from privit.train.fitting.choose import choose_plans, site_scores
from privit.train.fitting.fit import FitConfig, fit
from privit.train.hosts.fresh import random_weights
from privit.train.search import search
from privit.train.stages import read_model
from privit.train.student.vit import Student
from privit.train.training_free import TrainingFreeConfig, fit_run, fitted_start, search_without_training

SPEC = vit_spec(image_size=8, patch_size=4, width=16, depth=2, heads=2, classes=4, channels=1)
STAND_IN = {"gelu": "quadratic", "softmax": "quadratic_attn"}
FIT = FitConfig(images=64, batch_size=32)
CONFIG = TrainingFreeConfig(
    budgets=(replace(keep(0.5), name="half"), replace(keep(0.2), name="fifth")), fit=FIT, score_images=64
)


def switched(granularity: Granularity | None = None) -> Student:
    """A student with switches, whose stand-ins are fitted."""
    student = Student(SPEC, granularity, stand_in=STAND_IN)
    louder = {"qkv.weight": 30, "up.weight": 30, "out.weight": 5, "down.weight": 5}
    weights = random_weights(SPEC, seed=2)
    student.load_weights({n: w * louder.get(n.partition(".")[2][2:], 1) for n, w in weights.items()})
    return fit(student, images(), FIT)


def images() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(48, 1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def scores() -> dict[str, list[np.ndarray]]:
    return site_scores(switched(), images())


def test_a_group_of_sites_adds_up_to_the_loss_measured_for_it(scores: dict[str, list[np.ndarray]]) -> None:
    student = switched()
    layer, head = 1, 0
    student.requires_grad_(False)
    pixels = torch.from_numpy(images())
    before = student(pixels).double().log_softmax(-1)
    student.switches("softmax")[layer][head, 0] = 0.0
    after = student(pixels).double().log_softmax(-1)
    loss = float((before.exp() * (before - after)).sum(-1).mean())
    assert scores["softmax"][layer][head, 0] == pytest.approx(loss, rel=1e-2)
    student.switches("softmax")[layer][head, 0] = 1.0
    student.switches("gelu")[0][1:] = 0.0
    after = student(pixels).double().log_softmax(-1)
    loss = float((before.exp() * (before - after)).sum(-1).mean())
    assert scores["gelu"][0][1:].sum() == pytest.approx(loss, rel=1e-2)


def test_tokens_that_nobody_reads_cost_nothing(scores: dict[str, list[np.ndarray]]) -> None:
    """In the last layer of a model pooled by class token, only the class token's sites matter."""
    for kind in PAPER_KINDS:
        last = scores[kind][-1]
        assert last[..., 1:].max() < 1e-6 * last[..., 0].min()


def test_a_smaller_budget_keeps_a_part_of_what_a_larger_one_keeps(
    scores: dict[str, list[np.ndarray]],
) -> None:
    budgets = {"large": {"gelu": 6, "softmax": 0.5}, "small": {"gelu": 3, "softmax": 0.25}}
    plans = choose_plans(switched(), scores, budgets)
    assert [sum(plans["large"].kept(kind)) for kind in PAPER_KINDS] == [6, 10]
    assert [sum(plans["small"].kept(kind)) for kind in PAPER_KINDS] == [3, 5]
    exact = {"gelu": 0, "softmax": 16}
    for kind in PAPER_KINDS:
        for small, large in zip(plans["small"].layers[kind], plans["large"].layers[kind], strict=True):
            assert not ((small == exact[kind]) & (large != exact[kind])).any()


def test_a_budget_above_what_there_is_is_refused(scores: dict[str, list[np.ndarray]]) -> None:
    with pytest.raises(BudgetError, match="budget is 11, but the model has 10 gelu sites"):
        choose_plans(switched(), scores, {"final": {"gelu": 11, "softmax": 0}})


@pytest.mark.parametrize("granularity", [Granularity("element", "head"), Granularity("layer", "layer")])
def test_every_granularity_has_scores_shaped_like_its_sites(granularity: Granularity) -> None:
    student = switched(granularity)
    found = site_scores(student, images()[:16])
    for kind in PAPER_KINDS:
        assert [layer.shape for layer in found[kind]] == [sites.shape for sites in student.sites_of(kind)]
        assert all((layer >= 0).all() for layer in found[kind])


@pytest.fixture(scope="module")
def chosen(teacher_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chosen") / "run"
    search_without_training(teacher_run, folder, CONFIG)
    return folder


def test_a_run_without_training_spends_its_budgets(chosen: Path) -> None:
    result = load_run(chosen, "search").result()
    assert result is not None
    assert (result["kept_gelu"], result["kept_softmax"]) == (GELU_SITES // 5, SOFTMAX_SITES // 5)
    assert result["budgets"]["half"]["kept_gelu"] == GELU_SITES // 2
    assert result["epochs"] == 0
    assert read_model(load_run(chosen)).plan.hash() == result["plan"]


def test_a_finished_run_is_returned_and_other_settings_are_refused(chosen: Path, teacher_run: Path) -> None:
    again = search_without_training(teacher_run, chosen, CONFIG)
    assert again == load_run(chosen).result()
    with pytest.raises(RequestError, match="score_images is 64 there, 32 here"):
        search_without_training(teacher_run, chosen, replace(CONFIG, score_images=32))


def test_fine_tuning_starts_from_a_run_without_training(chosen: Path, tmp_path: Path) -> None:
    result = finetune(chosen, tmp_path / "tuned", replace(FINETUNE, epochs=1), budget="half")
    assert result["kept_gelu"] == GELU_SITES // 2
    before = read_arrays(chosen / "budgets" / "half" / "weights.safetensors")
    after = read_arrays(tmp_path / "tuned" / "weights.safetensors")
    assert before.keys() == after.keys()
    # The stand-ins' parameters train along.
    assert not np.array_equal(before["blocks.1.gelu.quadratic.q2"], after["blocks.1.gelu.quadratic.q2"])


def test_a_fit_leaves_no_exact_site(teacher_run: Path, tmp_path: Path) -> None:
    result = fit_run(teacher_run, tmp_path / "fit", TrainingFreeConfig(fit=FIT))
    assert (result["kept_gelu"], result["kept_softmax"]) == (0, 0)
    with pytest.raises(RequestError, match="a fit keeps nothing"):
        fit_run(teacher_run, tmp_path / "other", CONFIG)


def test_a_trained_search_starts_from_fitted_stand_ins(teacher_run: Path, tmp_path: Path) -> None:
    start = fitted_start(teacher_run, stand_in=STAND_IN, config=FIT)
    assert set(start) == {
        f"blocks.{layer}.{kind}.{name}"
        for layer in range(2)
        for kind, names in (
            ("gelu", ("quadratic.q2", "quadratic.q1", "quadratic.q0")),
            ("softmax", ("quadratic_attn.c2", "quadratic_attn.c1", "quadratic_attn.c0")),
        )
        for name in names
    }
    config = replace(SEARCH, stand_in=STAND_IN, epochs=1, budgets=(Budget({"gelu": 5, "softmax": 10}),))
    result = search(teacher_run, tmp_path / "search", config, initial_weights=start)
    assert (result["kept_gelu"], result["kept_softmax"]) == (5, 10)
