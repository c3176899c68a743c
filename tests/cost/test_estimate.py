"""Estimates: totals, explanations, the figure, and an answer at once."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.paper_totals import VIT_BASE, VIT_TINY

from privit.cost.estimate import PARTS, breakdown, estimate, explain, plot_breakdown
from privit.cost.gates.counts import LAYER_NORM, final_norm_rows, site_counts
from privit.errors import RequestError
from privit.plan import (
    Plan,
    load_plan,
    plan_from_counts,
    plan_from_kept,
    save_plan,
    swap_operator,
    uniform_plan,
)
from privit.spec import Granularity, Spec, sites, vit_spec, with_tokens, without_pools

SMALL = vit_spec(image_size=8, patch_size=4, width=8, depth=3, heads=2, classes=3)
FULL = {"gelu": [5, 5, 5], "softmax": [10, 10, 10]}


def test_counts_are_in_scalars_and_rows_at_every_granularity() -> None:
    for gelu in ("token", "element", "layer"):
        for softmax in ("row", "head", "layer"):
            plan = uniform_plan(SMALL, granularity=Granularity(gelu, softmax))  # type: ignore[arg-type]
            expected = {"gelu": 5 * 32, "softmax": 2 * 5, LAYER_NORM: 2 * 5}
            assert site_counts(SMALL, plan) == [expected] * 3


def test_counts_name_each_operator_and_lose_no_site(tiny_spec: Spec, tiny_plan: Plan) -> None:
    counts = site_counts(tiny_spec, tiny_plan)
    assert counts[0] == {"gelu": 64, "quadratic": 96, "softmax": 3, "squared_attn": 7, LAYER_NORM: 10}
    assert "softmax" not in counts[1]


def test_only_the_rows_of_the_last_layer_norm_that_are_read_count() -> None:
    assert final_norm_rows(SMALL) == 1
    assert final_norm_rows(vit_spec(8, 4, 8, 1, 2, 3, pooling="mean")) == 5
    assert final_norm_rows(vit_spec(8, 4, 8, 1, 2, 3, pooling="mean", final_norm="after_pool")) == 1


@pytest.mark.parametrize("profile", ["paper", "circuits", "circuits-float32-prime31"])
@pytest.mark.parametrize("kind", ["gelu", "softmax"])
def test_cost_grows_with_every_site_that_is_kept(profile: str, kind: str) -> None:
    totals = []
    for kept in range(4):
        counts = FULL | {kind: [kept, 2, 0]}
        totals.append(
            estimate(SMALL, plan_from_counts(SMALL, counts["gelu"], counts["softmax"]), profile).total
        )
    assert totals == sorted(set(totals))


def test_parts_and_layers_add_up_to_the_total(tiny_spec: Spec, tiny_plan: Plan) -> None:
    for profile in ("paper", "circuits"):
        found = estimate(tiny_spec, tiny_plan, profile)
        assert round(sum(breakdown(found).values())) == found.total
        assert set(breakdown(found)) == set(PARTS)
        data = found.to_json()
        assert data["measured_on"] == "estimated"
        assert data[found.unit] == found.total
        assert data["kept_gelu"] == 3
        assert data["kept_gelu_elements"] == 96
        assert len(data["per_layer"]) == tiny_spec.depth
    assert "relu_ops" in estimate(tiny_spec, tiny_plan, "paper").to_json()
    assert "and_gates" in estimate(tiny_spec, tiny_plan, "circuits").to_json()


def test_extrapolated_constants_are_named() -> None:
    assert estimate(VIT_TINY, uniform_plan(VIT_TINY), "paper").extrapolated == ()
    assert estimate(SMALL, uniform_plan(SMALL), "paper").extrapolated == ("layer_norm(8)", "softmax(5)")
    assert estimate(SMALL, uniform_plan(SMALL), "circuits").extrapolated == ()


def test_a_ratio_never_mixes_two_profiles() -> None:
    plan = uniform_plan(SMALL)
    relus = swap_operator(plan, "gelu", "relu")
    paper, ours = (estimate(SMALL, plan, name) for name in ("paper", "circuits"))
    assert paper.ratio(estimate(SMALL, relus, "paper")) > 1
    with pytest.raises(RequestError, match="compare two units"):
        paper.ratio(ours)
    with pytest.raises(RequestError, match="compare two units"):
        paper.ratio(estimate(SMALL, plan, "paper-without-square"))


def test_options_of_the_engine_are_refused_by_profiles_that_count_gates() -> None:
    with pytest.raises(RequestError, match="takes no network, protocol"):
        estimate(SMALL, uniform_plan(SMALL), "paper", protocol="cheetah", network="wan")


def test_removing_what_explain_names_saves_what_it_says() -> None:
    plan = plan_from_counts(SMALL, [3, 2, 1], [4, 0, 1])
    before = estimate(SMALL, plan, "paper").total
    rows = explain(SMALL, plan, "paper")
    assert [row.group_saving for row in rows] == sorted((row.group_saving for row in rows), reverse=True)
    assert {(row.layer, row.kind, row.sites) for row in rows} == {
        (0, "gelu", 3), (1, "gelu", 2), (2, "gelu", 1), (0, "softmax", 4), (2, "softmax", 1),
        (0, "norm", 1), (1, "norm", 2), (2, "norm", 2),
    }  # fmt: skip

    def cost(counts: dict[str, list[int]]) -> int:
        kept = plan_from_counts(SMALL, counts["gelu"], counts["softmax"], norms=counts["norm"])
        return estimate(SMALL, kept, "paper").total

    for row in rows:
        counts = {"gelu": plan.kept("gelu"), "softmax": plan.kept("softmax"), "norm": [2, 2, 2]}
        counts[row.kind][row.layer] -= 1
        one_less = cost(counts)
        assert before - one_less == pytest.approx(row.site_saving, abs=1)
        counts[row.kind][row.layer] -= row.sites - 1
        none = cost(counts)
        assert before - none == pytest.approx(row.group_saving, abs=1)
        assert row.share == pytest.approx(row.group_cost / before)


def test_nothing_is_left_to_explain_where_nothing_is_exact() -> None:
    assert explain(SMALL, uniform_plan(SMALL, "identity", "squared_attn", norm="reused_norm")) == []


def test_the_breakdown_becomes_a_picture(tmp_path: Path) -> None:
    found = estimate(SMALL, uniform_plan(SMALL), "paper")
    path = plot_breakdown(found, tmp_path / "pie.png")
    assert path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("profile", ["paper", "circuits"])
def test_vit_base_with_seven_million_sites_is_answered_within_a_second(tmp_path: Path, profile: str) -> None:
    granularity = Granularity(gelu="element")
    shapes = sites(VIT_BASE, granularity)
    rng = np.random.default_rng(0)
    kept = {kind: [rng.random(shape) < 0.1 for shape in shapes[kind]] for kind in shapes}
    plan = plan_from_kept(granularity, kept)
    assert plan.total("gelu") == 7_262_208
    save_plan(plan, tmp_path / "plan.safetensors")
    # Processor time, which is the wall's on an idle machine, and does not grow on a busy one.
    start = time.process_time()
    loaded = load_plan(tmp_path / "plan.safetensors")
    estimate(VIT_BASE, loaded, profile).to_json()
    explain(VIT_BASE, loaded, profile)
    assert time.process_time() - start < 1


POOLED = with_tokens(SMALL, [5, 5, 3])


def test_norms_count_in_tokens_and_every_layer_by_its_own_tokens() -> None:
    plan = plan_from_counts(POOLED, [5, 5, 3], [10, 10, 6], norms=[2, 1, 0])
    assert [layer.get("layer_norm", 0) for layer in site_counts(POOLED, plan)] == [10, 5, 0]
    assert [layer.get("reused_norm", 0) for layer in site_counts(POOLED, plan)] == [0, 5, 6]
    by_class = uniform_plan(POOLED, granularity=Granularity(norm="class"), norm="reused_norm")
    counts = site_counts(POOLED, by_class)
    assert (counts[0]["layer_norm"], counts[0]["reused_norm"]) == (5, 5)
    assert counts[2]["softmax"] == 2 * 3
    assert counts[2]["gelu"] == 3 * 32


def test_a_reused_or_fixed_norm_costs_nothing_and_a_linear_one_its_squares() -> None:
    free, linear, exact = (
        estimate(SMALL, uniform_plan(SMALL, "identity", "uniform_attn", norm=norm), "paper")
        for norm in ("fixed_norm", "linear_norm", "layer_norm")
    )
    reused = estimate(SMALL, plan_from_counts(SMALL, [0] * 3, [0] * 3, norms=[1, 0, 0]), "paper")
    assert free.total == 0
    assert breakdown(linear)["stand_ins"] == pytest.approx(3 * 2 * 5 * 8 * 3248 / 197)
    assert breakdown(reused)["layer_norm"] == pytest.approx(breakdown(exact)["layer_norm"] / 6)
    # The circuits count the last LayerNorm too.
    assert estimate(SMALL, uniform_plan(SMALL, norm="fixed_norm"), "circuits").after == 0


@pytest.mark.parametrize("profile", ["paper", "paper-without-square", "circuits"])
def test_fewer_tokens_cost_less_in_every_profile(profile: str) -> None:
    pooled, whole = (estimate(spec, uniform_plan(spec), profile) for spec in (POOLED, SMALL))
    assert pooled.total < whole.total
    assert pooled.to_json()["tokens"] == [5, 5, 3]


@pytest.mark.parametrize("rewrites", ["dense", "dense-rewritten"])
def test_a_pooled_model_is_compared_with_the_untouched_one_without_pools(rewrites: str) -> None:
    plan = uniform_plan(POOLED, "identity", norm="reused_norm")
    found = estimate(POOLED, plan, "spu", protocol="semi2k-benchmark", rewrites=rewrites)
    whole = estimate(
        without_pools(POOLED), uniform_plan(SMALL), "spu", protocol="semi2k-benchmark", rewrites=rewrites
    )
    assert found == whole
    own = estimate(POOLED, plan, "spu", protocol="semi2k-benchmark")
    assert own["rounds"] < found["rounds"]


def test_norms_that_could_be_reused_are_explained_and_the_first_is_not_among_them() -> None:
    found = [r for r in explain(POOLED, uniform_plan(POOLED), "paper") if r.kind == "norm"]
    assert {(r.layer, r.sites, r.stand_in) for r in found} == {
        (0, 1, "reused_norm"),
        (1, 2, "reused_norm"),
        (2, 2, "reused_norm"),
    }
    by_layer = {r.layer: r for r in found}
    assert by_layer[1].group_saving == 2 * by_layer[0].group_saving
    assert by_layer[2].site_saving == pytest.approx(3 / 5 * by_layer[1].site_saving)
