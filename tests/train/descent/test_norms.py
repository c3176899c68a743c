"""A trained search with LayerNorms among its kinds: switched, counted, pinned, resumed and stable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import GELU_SITES, SEARCH, SOFTMAX_SITES

from privit.config import Budget, Descent
from privit.runs import load_run
from privit.spec import KINDS
from privit.train.descent.descent import levels_of
from privit.train.search import search
from privit.train.stages import read_model

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
    from privit.train.loop import loop

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
