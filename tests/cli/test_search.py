"""`privit search` without training: what is set is what is done, however it is spelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import SOFTMAX_SITES

from privit.cli import main
from privit.plan import load_plan
from privit.spec import PAPER_KINDS

OWN = '{ gelu = "affine", softmax = "scale_attn" }'
MORE_THAN_THE_MODEL_COSTS = "1e9"


@pytest.fixture
def searched(teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a search without training; gives its result and the operators of its plan."""

    def run(*arguments: str) -> tuple[dict[str, Any], set[str]]:
        out = tmp_path / "search"
        common = ["search", str(teacher_run), "--out", str(out), "--no-training", "--json"]
        assert main([*common, *arguments]) == 0
        result = json.loads(capsys.readouterr().out)
        plan = load_plan(out / "plan.safetensors")
        layers = range(len(plan.layers["gelu"]))
        found = (entry for kind in PAPER_KINDS for i in layers for entry in plan.operators(kind, i))
        return result, {entry.name for entry in found}

    return run


def test_stand_ins_are_fitted_quadratics_unless_others_are_set(searched: Any) -> None:
    _, operators = searched("--keep", "0.2")
    assert operators == {"gelu", "softmax", "quadratic", "quadratic_attn"}


def test_stand_ins_that_are_set_are_used(searched: Any) -> None:
    _, operators = searched("--keep", "0.2", "--set", f"stand_in={OWN}")
    assert operators == {"gelu", "softmax", "affine", "scale_attn"}


def test_a_kind_that_is_not_searched_keeps_every_site(searched: Any) -> None:
    result, operators = searched("--keep", "0.2", "--set", "kinds=gelu")
    assert (result["kept_gelu"], result["kept_softmax"]) == (2, SOFTMAX_SITES)
    assert operators == {"gelu", "softmax", "quadratic"}


@pytest.mark.parametrize("spelling", ["stand_in", "stand-in"])
def test_under_a_budget_in_cost_they_are_used_too_in_either_spelling(searched: Any, spelling: str) -> None:
    _, operators = searched("--max-relu-ops", "60000", "--set", f"{spelling}={OWN}")
    assert operators >= {"affine", "scale_attn"}
    assert not operators & {"quadratic", "quadratic_attn"}


def test_under_a_budget_in_cost_a_kind_that_is_not_searched_keeps_every_site(searched: Any) -> None:
    result, _ = searched("--max-relu-ops", MORE_THAN_THE_MODEL_COSTS, "--set", "kinds=gelu")
    assert result["kept_softmax"] == SOFTMAX_SITES
