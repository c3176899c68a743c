"""A trained search with LayerNorms among its kinds: switched, counted, pinned, resumed and stable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import GELU_SITES, SEARCH, SOFTMAX_SITES

from privit.config import Descent, FinetuneConfig
from privit.cost.budgets.budget import Budget
from privit.errors import TrainingDiverged
from privit.operators import FITTED
from privit.runs import load_run
from privit.spec import KINDS
from privit.train.descent.descent import levels_of
from privit.train.finetune import finetune
from privit.train.fitting.fit import FitConfig
from privit.train.loop import loop
from privit.train.search import search
from privit.train.stages import read_model
from privit.train.training_free import TrainingFreeConfig, fitted_start, search_without_training

NORMS = replace(
    SEARCH,
    kinds=KINDS,
    budgets=(Budget({"gelu": 0.2, "softmax": 0.2, "norm": 2}),),
    descents=SEARCH.descents | {"norm": Descent(2e-2, 2.0, 1)},
)
NORM_SITES = 5


def test_a_search_of_all_kinds_spends_each_budget_and_keeps_the_first_norm(
    teacher_run: Path, tmp_path: Path
) -> None:
    result = search(teacher_run, tmp_path / "search", NORMS)
    assert [result[f"kept_{kind}"] for kind in KINDS] == [0.2 * GELU_SITES, 0.2 * SOFTMAX_SITES, 2]
    plan = read_model(load_run(tmp_path / "search")).plan
    assert plan.layers["norm"][0][0] == 32
    assert {int(i) for ids in plan.layers["norm"] for i in ids} == {32, 33}
    records = load_run(tmp_path / "search").metrics()
    assert records[0]["active_norm"] <= NORM_SITES
    assert records[-1]["lambda_norm"] > 0
    assert set(result["lambda"]) == set(KINDS)


def test_a_search_with_fewer_tokens_gives_a_model_that_has_them(teacher_run: Path, tmp_path: Path) -> None:
    config = replace(NORMS, tokens=(5, 3), epochs=2, budgets=(Budget({"gelu": 4, "softmax": 8, "norm": 3}),))
    result = search(teacher_run, tmp_path / "search", config)
    model = read_model(load_run(tmp_path / "search"))
    assert [model.subject.spec.tokens_in(layer) for layer in range(2)] == [5, 3]
    assert model.weights["blocks.1.pool.weight"].shape == (2, 4)
    assert (result["kept_gelu"], result["kept_softmax"], result["kept_norm"]) == (4, 8, 3)


def test_a_search_that_names_no_norms_says_and_does_nothing_about_them(
    teacher_run: Path, tmp_path: Path
) -> None:
    result = search(teacher_run, tmp_path / "search", replace(SEARCH, epochs=1))
    assert result["kept_norm"] == NORM_SITES
    assert set(result["lambda"]) == {"gelu", "softmax"}
    assert not any("norm" in name for name in load_run(tmp_path / "search").metrics()[0])


def test_a_norm_budget_below_what_must_stay_is_met_by_that(teacher_run: Path) -> None:
    spec = read_model(load_run(teacher_run)).subject.spec
    budgets = (Budget({"gelu": 0, "softmax": 0, "norm": 0}),)
    (level,) = levels_of(budgets, spec, NORMS)
    assert level.sites == {"gelu": 0, "softmax": 0, "norm": 1}
    (level,) = levels_of(budgets, spec, replace(NORMS, stand_in=NORMS.stand_in | {"norm": "fixed_norm"}))
    assert level.sites["norm"] == 0


def test_norms_are_pressed_down_as_gelus_are_unless_told_otherwise() -> None:
    assert NORMS.descent("norm") == Descent(2e-2, 2.0, 1)
    assert SEARCH.descent("norm") == SEARCH.descents["gelu"]
    counted = replace(SEARCH, descents=SEARCH.descents | {"gelu": Descent(1e-3, 1.1, 30)})
    assert counted.descent("norm") == Descent(1e-3, 1.1, 1)


def test_an_interrupted_search_with_norms_goes_on_to_the_same_bits(
    teacher_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = search(teacher_run, tmp_path / "whole", NORMS)
    count, plain = iter(range(99)), loop.save_checkpoint

    def stop_after_two(*arguments: object) -> None:
        plain(*arguments)  # type: ignore[arg-type]
        if next(count) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "save_checkpoint", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            search(teacher_run, tmp_path / "parts", NORMS)
    again = search(teacher_run, tmp_path / "parts", NORMS)
    assert again["plan"] == whole["plan"]
    first, second = (read_model(load_run(tmp_path / name)).weights for name in ("whole", "parts"))
    assert all(np.array_equal(first[name], second[name]) for name in first)


STAND_INS = ("reused_norm", "linear_norm", "fixed_norm")
NOTHING = (Budget({"gelu": 0, "softmax": 0, "norm": 0}),)
ROUGH = FinetuneConfig(epochs=2, batch_size=32, learning_rate=1e-2, select="last")
"""Ten times the learning rate of the other tests."""
FIT = FitConfig(images=128)


@pytest.fixture(scope="module", params=STAND_INS)
def fitted(
    request: pytest.FixtureRequest, teacher_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run without any exact site but a first norm that has nothing to reuse."""
    folder = tmp_path_factory.mktemp("norms") / "fit"
    stand_in = FITTED | {"norm": request.param}
    search_without_training(
        teacher_run, folder, TrainingFreeConfig(budgets=NOTHING, stand_in=stand_in, fit=FIT)
    )
    return folder


def test_fine_tuning_from_a_fit_stays_finite_over_ten_seeds(fitted: Path, tmp_path: Path) -> None:
    for seed in range(10):
        finetune(fitted, tmp_path / str(seed), replace(ROUGH, seed=seed))
        losses = [record["loss"] for record in load_run(tmp_path / str(seed)).metrics()]
        assert losses[-1] < 2 * losses[0]


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_a_search_of_all_kinds_stays_finite_over_ten_seeds(
    stand_in: str, teacher_run: Path, tmp_path: Path
) -> None:
    names = FITTED | {"norm": stand_in}
    start = fitted_start(teacher_run, stand_in=names, config=FIT, kinds=KINDS)
    pressed = dict.fromkeys(KINDS, Descent(5e-2, 3.0, 0.1))
    config = replace(NORMS, stand_in=names, budgets=NOTHING, descents=pressed, epochs=2, learning_rate=5e-3)
    for seed in range(10):
        result = search(teacher_run, tmp_path / str(seed), replace(config, seed=seed), start)
        assert (result["kept_gelu"], result["kept_softmax"]) == (0, 0)
        assert result["kept_norm"] == (1 if stand_in == "reused_norm" else 0)


def test_gradients_are_clipped_only_while_a_norm_is_replaced(
    fitted: Path, teacher_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clipped: list[float] = []
    plain = loop.torch.nn.utils.clip_grad_norm_

    def clip(weights: object, most: float) -> object:
        clipped.append(most)
        return plain(weights, most)

    monkeypatch.setattr(loop.torch.nn.utils, "clip_grad_norm_", clip)
    finetune(fitted, tmp_path / "replaced", replace(ROUGH, epochs=1))
    assert set(clipped) == {loop.NORM_CLIP}
    clipped.clear()
    finetune(fitted, tmp_path / "given", replace(ROUGH, epochs=1, gradient_clip=0.5))
    assert set(clipped) == {0.5}
    clipped.clear()
    plan = read_model(load_run(teacher_run)).plan
    finetune(teacher_run, tmp_path / "exact", replace(ROUGH, epochs=1), plan=plan)
    assert clipped == []


def test_what_is_not_a_number_still_stops_a_training_with_replaced_norms(
    fitted: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrainingDiverged, match="became NaN or infinite in epoch 1 of finetune"):
        finetune(fitted, tmp_path / "run", replace(ROUGH, learning_rate=1e20, gradient_clip=1e30))
