"""Synthetic plans with fewer exact LayerNorms and fewer tokens, in every verb that takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privit.cli import main

MODEL = ["--model", "vit_tiny_patch16_224", "--image-size", "112"]
CHEAP = ["--kept-gelu-tokens", "0", "--kept-softmax-rows", "0"]
CHEAP += ["--stand-in-gelu", "quadratic", "--stand-in-softmax", "quadratic_attn"]
NORMS = ["--kept-norms", "2,2,1,0,1,0,1,0,1,0,1,0"]
TOKENS = ["--tokens", "50,50,50,50,50,50,17,17,17,17,17,17"]


@pytest.fixture
def cost(capsys: pytest.CaptureFixture[str]) -> Any:
    """What a synthetic plan of DeiT-Tiny at 112 px costs."""

    def run(*arguments: str) -> dict[str, Any]:
        assert main(["cost", *MODEL, *CHEAP, *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("protocol", ["semi2k-benchmark", "cheetah", "aby3"])
def test_fewer_norms_save_rounds_and_fewer_tokens_bytes_on_the_engine(cost: Any, protocol: str) -> None:
    engine = ("--profile", "spu", "--protocol", protocol)
    whole, reused, both = cost(*engine), cost(*engine, *NORMS), cost(*engine, *NORMS, *TOKENS)
    # 15 of 25 LayerNorms have no rsqrt; each of those takes at least 20 actions on every protocol.
    assert reused["rounds"] < whole["rounds"] - 15 * 20
    assert both["sent_bytes"] < 0.9 * reused["sent_bytes"]
    assert both["compute_seconds"] < reused["compute_seconds"]


@pytest.mark.parametrize("profile", ["paper", "paper-without-square", "circuits"])
def test_and_gates_in_every_profile(cost: Any, profile: str) -> None:
    whole, reused, both = (cost("--profile", profile, *more) for more in ((), NORMS, (*NORMS, *TOKENS)))
    parts = [found["by_part"]["layer_norm"] for found in (whole, reused, both)]
    assert parts == sorted(parts, reverse=True)
    assert (whole["kept_norm"], reused["kept_norm"]) == (25, 10)
    assert both["tokens"] == [50] * 6 + [17] * 6
    if profile == "paper":
        # Nine of the 24 LayerNorms that the paper counts are left, each on all 50 tokens.
        assert parts[1] * 24 == pytest.approx(parts[0] * 9, rel=1e-6)


def test_what_to_remove_next_is_also_a_norm(cost: Any) -> None:
    found = cost("--explain")["explain"]
    assert {row["operator"] for row in found} == {"layer_norm"}
    assert {row["stand_in"] for row in found} == {"reused_norm"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kept-norms", "0,2,2,2,2,2,2,2,2,2,2,2"], "the first LayerNorm is to be reused"),
        (["--kept-norms", "2,3,2,2,2,2,2,2,2,2,2,2"], "asked to keep 3 LayerNorms, but a block has 2"),
        (["--kept-norms", "2,2"], "2 norm counts given, but the model has 12 layers"),
        (["--kept-norms", "few"], "is not a list of counts"),
        (["--tokens", "50,50"], "2 token counts given, but the model has 12 blocks"),
        (["--tokens", "50,51" + ",50" * 10], "block 1 is to have 51 tokens, but only 50 reach it"),
        (["--tokens", "50" + ",1" * 11], "which leaves no patch"),
        (["--tokens", "few"], "is not a list of token counts"),
        (["--kept-norms", "1", "--stand-in-norm", "gelu"], "no norm operator is called 'gelu'"),
    ],
)
def test_norms_and_tokens_that_cannot_be_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["cost", *MODEL, *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_an_artifact_has_a_plan_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["cost", str(tmp_path), *NORMS]) == 2
    assert "an artifact has a plan of its own" in capsys.readouterr().err


def test_compile_takes_the_same_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", *MODEL, "--tokens", "50,50"]) == 2
    assert "2 token counts given, but the model has 12 blocks" in " ".join(capsys.readouterr().err.split())
