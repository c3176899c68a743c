"""`privit cost` and `privit bench` of one synthetic plan: the same ranges, the same bytes and rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privit.cli import main

# Seven blocks of five tokens, of which every layer keeps a few.
PLAN = ["--model", "mpcvit_cifar", "--image-size", "8"]
PLAN += ["--kept-gelu-tokens", "2", "--kept-softmax-rows", "3,0,5,1,20,0,2"]
SEMI2K = ["--protocol", "semi2k-benchmark", "--json"]
PAPER_PLAN_RANGES = Path(__file__).parents[2] / "docs" / "results" / "paper-plan-ranges.json"


def asked(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([str(argument) for argument in arguments]) == 0
    return json.loads(capsys.readouterr().out)


def cost(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, int]:
    result = asked(capsys, "cost", "--profile", "spu", *PLAN, *SEMI2K, *arguments)
    return result["sent_bytes"], result["rounds"]


def bench(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[tuple[int, int], str]:
    """Bytes and rounds, and what is said about the ranges."""
    result = asked(capsys, "bench", *PLAN, *SEMI2K, *arguments)
    return (result["sent_bytes"], result["rounds"]), result["ranges"]


def test_without_ranges_cost_and_bench_agree_to_the_byte_on_the_generic_functions(capsys):
    assert bench(capsys) == (cost(capsys), "none")


def test_with_ranges_they_agree_to_the_byte_whether_measured_or_read(capsys, tmp_path):
    file = tmp_path / "ranges.json"
    short, _ = bench(capsys, "--ranges", "random", "--write-ranges", file)
    assert cost(capsys, "--ranges", "random") == cost(capsys, "--ranges", file) == short
    assert bench(capsys, "--ranges", file) == (short, f"read from {file}")
    _, generic_rounds = cost(capsys)
    assert short[1] < 0.7 * generic_rounds


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("[1, 2]", "does not hold a JSON object"),
        ('{"norm.variance_low": "wide"}', "norm.variance_low is 'wide', not a finite number"),
        ('{"norm.variance_low": NaN}', "not a finite number"),
        ('{"norm.variance_low": -1}', "norm.variance_low is -1, not a finite number from 0 on"),
        ('{"norm.variance_low": 2, "norm.variance_high": 1}', "norm.variance_low is 2, above"),
        ('{"norm.variance_low": 1, "norm.variance_high": 1e308}', "is 1e+308, more than any model"),
        ('{"blocks.0.softmax.mean_exp": 1e-30}', "is 1e-30, but a mean of powers"),
        ('{"blocks.7.norm1.variance_low": 1.0}', "is about layer 7, but the model has 7 layers, 0 to 6"),
        ("{}", "names no range"),
    ],
)
def test_a_file_that_holds_no_ranges_of_this_model_is_refused(capsys, tmp_path, content, words):
    file = tmp_path / "ranges.json"
    if content is not None:
        file.write_text(content)
    assert main(["cost", "--profile", "spu", *PLAN, "--ranges", str(file)]) == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert "hint: " in shown


def test_without_ranges_there_are_none_to_write(capsys, tmp_path):
    assert main(["bench", *PLAN, *SEMI2K, "--write-ranges", str(tmp_path / "ranges.json")]) == 2
    assert "there are no ranges to write" in capsys.readouterr().err


def test_an_artifact_has_ranges_of_its_own(capsys, tmp_path):
    assert main(["cost", str(tmp_path), "--ranges", "random"]) == 2
    assert "an artifact has ranges of its own" in capsys.readouterr().err


VIT_TINY = ["--model", "vit_tiny_patch16_224", "--kept-gelu-tokens", "127,1,41,6,5,6,6,4,1,1,1,1"]
VIT_TINY += ["--kept-softmax-rows", "381,393,205,0,2,0,2,3,3,3,3,3"]


def predicted(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, int]:
    found = asked(capsys, "cost", "--profile", "spu", *VIT_TINY, *SEMI2K, *arguments)
    return found["sent_bytes"], found["rounds"]


def test_the_papers_plan_on_the_generic_functions_is_priced_as_docs_engine_measured_it(capsys):
    sent, rounds = predicted(capsys)
    assert (round(sent / 1e6, 1), rounds) == (219.3, 2637)


def test_the_papers_plan_with_its_ranges_is_priced_to_the_byte_as_bench_measures_it(capsys):
    assert predicted(capsys, "--ranges", PAPER_PLAN_RANGES) == (201_735_582, 1356)
