"""`privit search` without training: what is set is what is done, however it is spelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import SOFTMAX_SITES

from privit.cli import main
from privit.cost.estimate import estimate
from privit.plan import load_plan, uniform_plan
from privit.runs import load_run
from privit.spec import KINDS, Spec, with_tokens
from privit.train.stages import read_model

OWN = '{ gelu = "affine", softmax = "scale_attn" }'
MORE_THAN_THE_MODEL_COSTS = "1e9"


@pytest.fixture
def searched(teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a search without training; gives its result and the operators of its plan."""

    def run(*arguments: str) -> tuple[dict[str, Any], set[str]]:
        out = tmp_path / "search"
        paper = ["--preset", "paper", "--no-training"]
        common = ["search", str(teacher_run), "--out", str(out), *paper, "--json"]
        assert main([*common, *arguments]) == 0
        result = json.loads(capsys.readouterr().out)
        plan = load_plan(out / "plan.safetensors")
        layers = range(len(plan.layers["gelu"]))
        found = (entry for kind in KINDS for i in layers for entry in plan.operators(kind, i))
        return result, {entry.name for entry in found}

    return run


def test_stand_ins_are_fitted_quadratics_unless_others_are_set(searched: Any) -> None:
    _, operators = searched("--keep", "0.2")
    assert operators == {"gelu", "softmax", "quadratic", "quadratic_attn", "layer_norm"}


def test_stand_ins_that_are_set_are_used(searched: Any) -> None:
    _, operators = searched("--keep", "0.2", "--set", f"stand_in={OWN}")
    assert operators == {"gelu", "softmax", "affine", "scale_attn", "layer_norm"}


def test_a_kind_that_is_not_searched_keeps_every_site(searched: Any) -> None:
    result, operators = searched("--keep", "0.2", "--set", "kinds=gelu")
    assert (result["kept_gelu"], result["kept_softmax"]) == (2, SOFTMAX_SITES)
    assert operators == {"gelu", "softmax", "quadratic", "layer_norm"}


@pytest.mark.parametrize("spelling", ["stand_in", "stand-in"])
def test_under_a_budget_in_cost_they_are_used_too_in_either_spelling(searched: Any, spelling: str) -> None:
    _, operators = searched("--max-relu-ops", "60000", "--set", f"{spelling}={OWN}")
    assert operators >= {"affine", "scale_attn"}
    assert not operators & {"quadratic", "quadratic_attn"}


def test_under_a_budget_in_cost_a_kind_that_is_not_searched_keeps_every_site(searched: Any) -> None:
    result, _ = searched("--max-relu-ops", MORE_THAN_THE_MODEL_COSTS, "--set", "kinds=gelu")
    assert result["kept_softmax"] == SOFTMAX_SITES


def rounds_of(spec: Spec, **names: str) -> int:
    """What a plan with the same operators everywhere takes on semi2k-benchmark, without any range."""
    return estimate(spec, uniform_plan(spec, **names), "spu", protocol="semi2k-benchmark")["rounds"]


def test_norms_stay_unless_they_are_searched(searched: Any, teacher_run: Path) -> None:
    spec = read_model(load_run(teacher_run)).subject.spec
    cheap = {"gelu": "affine", "softmax": "static_attn"}
    between = (rounds_of(spec, **cheap, norm="reused_norm") + rounds_of(spec, **cheap)) // 2
    budget = ("--max-rounds", str(between), "--protocol", "semi2k-benchmark")
    result, operators = searched("--norms", *budget)
    assert "reused_norm" in operators
    assert result["predicted_cost"] <= between
    assert 1 <= result["kept_norm"] < 2 * spec.depth + 1


def test_a_budget_of_norms_alone_searches_them_alone(searched: Any) -> None:
    result, operators = searched("--norm-budget", "3")
    assert result["kept_norm"] == 3
    assert operators == {"gelu", "softmax", "layer_norm", "reused_norm"}


def test_tokens_may_be_given_or_chosen_by_the_budget(
    searched: Any, teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = read_model(load_run(teacher_run)).subject.spec
    result, _ = searched("--keep", "0.2", "--tokens", "5,2")
    assert result["tokens"] == [5, 2]
    assert read_model(load_run(tmp_path / "search")).subject.spec == with_tokens(spec, [5, 2])
    free = uniform_plan(spec, "affine", "static_attn", norm="layer_norm")
    least = estimate(spec, free, "paper").total
    auto = [
        "search",
        str(teacher_run),
        "--out",
        str(tmp_path / "auto"),
        *("--preset", "paper", "--no-training"),
        "--json",
        "--tokens",
        "auto",
    ]
    assert main([*auto, "--max-relu-ops", str(round(0.9 * least))]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tokens"] == [5, 2]
    assert result["predicted_cost"] <= 0.9 * least
    assert result["tokens_tried"][0]["tokens"] == [5, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tokens", "auto", "--keep", "0.2"), "tokens are chosen by one budget in cost"),
        (("--tokens", "5,6", "--keep", "0.2"), "block 1 is to have 6 tokens, but only 5 reach it"),
        (("--tokens", "5", "--keep", "0.2"), "1 token counts given, but the model has 2 blocks"),
        (("--tokens", "few", "--keep", "0.2"), "'few' is not a list of token counts"),
        (("--norm-budget", "99"), "budget is 99, but the model has 5 norm sites"),
        (
            ("--norm-budget", "0", "--max-relu-ops", "1e9"),
            "0 norm sites may be exact, but 2 cannot be replaced",
        ),
    ],
)
def test_norms_and_tokens_that_cannot_be_are_refused(
    teacher_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    paper = ["--preset", "paper", "--no-training"]
    assert main(["search", str(teacher_run), "--out", str(tmp_path / "search"), *paper, *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_tokens_are_not_chosen_by_a_trained_search(
    teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paper = ["--preset", "paper", "--tokens", "auto"]
    command = ["search", str(teacher_run), "--out", str(tmp_path / "search"), *paper]
    assert main([*command, "--max-relu-ops", "1e9"]) == 2
    assert "--tokens auto chooses without training" in capsys.readouterr().err


def best_of(teacher_run: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """What a search with nothing but a budget gives."""
    assert main(["search", str(teacher_run), "--out", str(out), "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_best_known_way_is_the_default(
    teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = best_of(teacher_run, tmp_path / "share", capsys, "--keep", "0.2")
    assert (result["kept_gelu"], result["kept_softmax"], result["kept_norm"]) == (2, 4, 2)
    assert result["epochs"] == 0
    plan = load_plan(tmp_path / "share" / "plan.safetensors")
    names = {entry.name for kind in KINDS for entry in plan.operators(kind, 1)}
    assert {"quadratic", "quadratic_attn", "reused_norm"} <= names
    budget = ("--max-rounds", "150", "--protocol", "semi2k-benchmark")
    config = load_run(tmp_path / "share").description["config"]
    assert "most_reused" not in config
    result = best_of(teacher_run, tmp_path / "rounds", capsys, *budget)
    assert result["predicted_cost"] <= 150
    assert load_run(tmp_path / "rounds").description["config"]["most_reused"] == 3


def test_fine_tuning_without_a_flag_takes_its_settings_from_the_teacher_and_its_images(
    teacher_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best_of(teacher_run, tmp_path / "search", capsys, "--keep", "0.2")
    tuning = ["finetune", str(tmp_path / "search"), "--out", str(tmp_path / "tuned"), "--epochs", "1"]
    assert main([*tuning, "--json"]) == 0
    config = load_run(tmp_path / "tuned").description["config"]
    assert config["learning_rate"] == 1.5e-3  # half the tiny teacher's
    assert (config["operator_rate"], config["gradient_clip"]) == (0.1, 1.0)
