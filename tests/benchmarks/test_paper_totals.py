"""The paper's totals, computed from its constants; the differences are written down."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.paper_totals import (
    MPCVIT_CIFAR,
    MPCVIT_TINY_IMAGENET,
    SCRATCH_GELU_TOKENS,
    SCRATCH_SOFTMAX_ROWS,
    TINY_IMAGENET_GELU_TOKENS,
    TINY_IMAGENET_SOFTMAX_ROWS,
    UNSTATED,
    VIT_BASE,
    VIT_TINY,
    Total,
    computable_totals,
    mpcvit_plan,
    square_floor,
)

from privit.cost.estimate import estimate
from privit.cost.gates.circuits.functions import FUNCTIONS
from privit.cost.gates.counts import LAYER_NORM, site_counts
from privit.cost.gates.profiles import profile
from privit.plan import plan_from_counts, uniform_plan
from privit.spec import Spec

PAPER = Path(__file__).resolve().parents[4] / "shared" / "paper" / "privit.tex"


def test_tiny_imagenet_costs_110_57_million_where_the_paper_prints_110_60() -> None:
    plan = plan_from_counts(VIT_TINY, TINY_IMAGENET_GELU_TOKENS, TINY_IMAGENET_SOFTMAX_ROWS)
    assert estimate(VIT_TINY, plan, "paper").total == 110_565_052
    assert sum(plan.kept("gelu")) == 200
    assert sum(plan.kept("softmax")) == 998


@pytest.mark.parametrize(
    ("spec", "heads", "printed"),
    [
        (MPCVIT_CIFAR, 20, 72.21),
        (MPCVIT_CIFAR, 14, 71.77),
        (MPCVIT_CIFAR, 9, 71.40),
        (MPCVIT_CIFAR, 3, 70.96),
        (MPCVIT_TINY_IMAGENET, 98, 381.42),
        (MPCVIT_TINY_IMAGENET, 54, 331.35),
        (MPCVIT_TINY_IMAGENET, 33, 307.45),
        (MPCVIT_TINY_IMAGENET, 11, 282.42),
    ],
)
def test_mpcvit_totals_are_the_printed_ones_exactly(spec: Spec, heads: int, printed: float) -> None:
    total = estimate(spec, mpcvit_plan(spec, heads), "paper").total
    assert round(total / 1e6, 2) == printed


@pytest.mark.parametrize("total", computable_totals(), ids=lambda total: total.where)
def test_each_computable_total_differs_by_what_is_known(total: Total) -> None:
    # Only the 200/998 model is off by more than rounding: 0.03 %, which no count of ours explains.
    known = -0.0349 if "PriViT-G" in total.where else 0.0
    assert total.difference == pytest.approx(known, abs=0.005)


def test_the_square_term_is_a_choice_and_both_answers_are_known() -> None:
    plan = plan_from_counts(VIT_TINY, TINY_IMAGENET_GELU_TOKENS, TINY_IMAGENET_SOFTMAX_ROWS)
    with_square = estimate(VIT_TINY, plan, "paper").total
    without = estimate(VIT_TINY, plan, "paper-without-square").total
    assert without == 90_771_740
    assert with_square - without == (12 * 3 * 197 - 998) * 3248


def test_the_printed_cifar_100_totals_of_privit_r_leave_the_square_term_out() -> None:
    (row,) = (unstated for unstated in UNSTATED if unstated.where == "PriViT-R on CIFAR-100")
    below = [printed for printed in row.printed if printed < square_floor(profile="paper")]
    assert below == [49.25, 34.60, 33.95, 33.58]
    assert all(printed > square_floor(profile="paper-without-square") for printed in row.printed)


def test_no_other_printed_total_lies_below_the_square_term() -> None:
    for row in UNSTATED:
        if row.where.startswith("PriViT") and row.where != "PriViT-R on CIFAR-100":
            assert min(row.printed) > square_floor(profile="paper")


def test_the_model_trained_from_scratch_costs_about_as_much() -> None:
    plan = plan_from_counts(VIT_TINY, SCRATCH_GELU_TOKENS, SCRATCH_SOFTMAX_ROWS)
    assert (sum(plan.kept("gelu")), sum(plan.kept("softmax"))) == (208, 973)
    assert estimate(VIT_TINY, plan, "paper").total == 111_840_482


def test_vit_base_has_ten_times_the_gelus_the_paper_says_and_swapped_names_for_the_rest() -> None:
    counts = site_counts(VIT_BASE, uniform_plan(VIT_BASE))
    # "726,000 GeLUs, 28,000 layernorms, and 4000 softmaxes"
    assert sum(layer["gelu"] for layer in counts) == 7_262_208
    assert sum(layer["softmax"] for layer in counts) == 28_368
    assert sum(layer[LAYER_NORM] for layer in counts) == 4_728
    # The captions of the two figures of kept sites have the layers right.
    assert counts[0]["gelu"] == 605_184
    assert counts[0]["softmax"] == 2_364


def test_the_speedups_over_mpcvit_follow_from_the_printed_totals() -> None:
    # "3x and 4.7x speedup compared to MPCViT" at about 63 % on Tiny-ImageNet.
    assert pytest.approx(3.0, abs=0.01) == 331.35 / 110.60
    assert pytest.approx(4.79, abs=0.01) == 331.35 / 69.11


def test_the_iso_latency_lines_do_not_follow_from_the_constants() -> None:
    # The grid search draws lines of 51 GELUs for a softmax.
    prices, plain = profile("paper"), profile("paper-without-square")
    worth = {
        p.name: (p.cost("softmax", 197) - p.cost("squared_attn", 197)) / p.cost("gelu", 1)
        for p in (prices, plain)
    }
    assert worth["paper"] == pytest.approx(56.8, abs=0.05)
    assert worth["paper-without-square"] == pytest.approx(68.8, abs=0.05)


def test_every_total_is_either_computed_or_listed_with_a_reason() -> None:
    assert all(len(row.reason) > 10 for row in UNSTATED)
    printed = [total.printed for total in computable_totals()] + [p for row in UNSTATED for p in row.printed]
    assert len(printed) == len(set(printed))
    assert set(FUNCTIONS) >= {"gelu", "softmax", "relu_softmax", "layer_norm", "square"}


@pytest.mark.shared
def test_every_number_attributed_to_the_paper_is_printed_there() -> None:
    if not PAPER.is_file():
        pytest.skip("there is no ../shared/paper beside the repository")
    text = PAPER.read_text()
    for total in computable_totals():
        assert f"{total.printed:.2f}" in text
    for row in UNSTATED:
        for number in row.printed:
            assert f"{number:.2f}" in text or str(number) in text
