"""A plan counts what it keeps, survives the disk, and belongs to one model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from privit.errors import ArtifactError, BudgetError, RequestError
from privit.operators import operator
from privit.plan import (
    Plan,
    all_weight_shapes,
    check_plan,
    load_plan,
    plan_from_counts,
    plan_from_ids,
    plan_from_kept,
    save_plan,
    site_budget,
    swap_operator,
    uniform_plan,
)
from privit.spec import Granularity, Spec, sites, vit_spec, with_tokens

VIT_TINY = vit_spec(224, 16, 192, 12, 3, 1000)
PAPER_GELU = [127, 1, 41, 6, 5, 6, 6, 4, 1, 1, 1, 1]
PAPER_SOFTMAX = [381, 393, 205, 0, 2, 0, 2, 3, 3, 3, 3, 3]


def test_the_untouched_model_keeps_everything(tiny_spec: Spec) -> None:
    plan = uniform_plan(tiny_spec)
    assert plan.kept("gelu") == [5, 5]
    assert plan.kept("softmax") == [10, 10]
    assert plan.total("softmax") == 20


def test_a_plan_from_counts_keeps_exactly_these_counts() -> None:
    plan = plan_from_counts(VIT_TINY, PAPER_GELU, PAPER_SOFTMAX)
    assert plan.kept("gelu") == PAPER_GELU
    assert plan.kept("softmax") == PAPER_SOFTMAX
    assert plan.kept_gelu_elements(VIT_TINY) == 200 * 768
    assert plan.kept_softmax_rows(VIT_TINY) == 998


def test_counts_start_with_the_class_tokens_sites_of_every_head() -> None:
    plan = plan_from_counts(VIT_TINY, [1] * 12, [3] * 12)
    exact = operator("softmax").id
    assert plan.layers["gelu"][4][0] == operator("gelu").id
    assert (plan.layers["softmax"][4][:, 0] == exact).all()


def test_counts_are_counted_alike_at_every_granularity(tiny_spec: Spec) -> None:
    by = [("token", "row"), ("element", "head"), ("layer", "layer")]
    plans = [uniform_plan(tiny_spec, granularity=Granularity(*names)) for names in by]  # type: ignore[arg-type]
    assert {plan.kept_gelu_elements(tiny_spec) for plan in plans} == {2 * 5 * 32}
    assert {plan.kept_softmax_rows(tiny_spec) for plan in plans} == {2 * 5 * 2}


@pytest.mark.parametrize("counts", [[6, 0], [-1, 0]])
def test_more_sites_than_a_layer_has_are_refused(tiny_spec: Spec, counts: list[int]) -> None:
    with pytest.raises(BudgetError, match=r"layer 0 is asked to keep -?\d gelu sites, but it has 5"):
        plan_from_counts(tiny_spec, counts, [0, 0])


def test_counts_for_another_depth_are_refused(tiny_spec: Spec) -> None:
    with pytest.raises(BudgetError, match="3 softmax counts given, but the model has 2 layers"):
        plan_from_counts(tiny_spec, [0, 0], [0, 0, 0])


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["token", "element", "layer"]))
def test_a_plan_survives_the_disk_with_its_hash(
    tmp_path_factory: pytest.TempPathFactory, seed: int, by: str
) -> None:
    spec = vit_spec(8, 4, 8, 2, 2, 3, channels=1)
    granularity = Granularity(by, "row")  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    layers = {
        k: [rng.integers(0, 4, s) + 16 * (k == "softmax") for s in v]
        for k, v in sites(spec, granularity).items()
    }
    plan = plan_from_ids(granularity, layers)
    path = tmp_path_factory.mktemp("plan") / "plan.safetensors"
    save_plan(plan, path)
    assert load_plan(path).hash() == plan.hash()


def test_one_changed_site_changes_the_hash(tiny_plan: Plan) -> None:
    layers = {kind: [ids.copy() for ids in arrays] for kind, arrays in tiny_plan.layers.items()}
    layers["gelu"][1][3] = operator("relu").id
    assert plan_from_ids(tiny_plan.granularity, layers).hash() != tiny_plan.hash()


def test_relu_replaces_gelu_only_where_it_is_kept(tiny_plan: Plan) -> None:
    swapped = swap_operator(tiny_plan, "gelu", "relu")
    assert swapped.kept("gelu") == tiny_plan.kept("gelu")
    assert {o.name for o in swapped.operators("gelu", 0)} == {"relu", "quadratic"}
    assert all(map(np.array_equal, swapped.layers["softmax"], tiny_plan.layers["softmax"]))


def test_an_operator_is_not_swapped_for_one_of_another_kind(tiny_plan: Plan) -> None:
    with pytest.raises(RequestError, match="no gelu operator is called 'softmax'"):
        swap_operator(tiny_plan, "gelu", "softmax")


def test_parameters_are_listed_only_for_operators_that_occur(tiny_spec: Spec, tiny_plan: Plan) -> None:
    names = all_weight_shapes(tiny_spec, tiny_plan)
    assert names["blocks.0.gelu.quadratic.q2"] == (32,)
    assert not any("affine" in name for name in names)


@pytest.mark.parametrize(
    ("value", "sites"), [(0, 0), (0.0, 0), (0.1, 28), (1.0, 288), (288, 288), (12.0, 12)]
)
def test_a_budget_is_a_count_or_a_share(value: float, sites: int) -> None:
    assert site_budget(value, 288, "gelu") == sites


@given(st.floats(0, 1), st.integers(0, 10_000))
def test_a_share_never_gives_more_sites_than_there_are(share: float, total: int) -> None:
    assert 0 <= site_budget(share, total, "gelu") <= share * total + 1e-6


@pytest.mark.parametrize(
    "value", [-1, -0.5, 289, 300.0, 2.5, 1.5, 1e300, 10**400, float("nan"), float("inf"), "0.1", None, True]
)
def test_a_budget_that_cannot_be_met_is_refused(value: object) -> None:
    with pytest.raises(BudgetError, match=r"budget is"):
        site_budget(value, 288, "gelu")  # type: ignore[arg-type]


def test_a_plan_for_another_model_is_refused(tiny_plan: Plan) -> None:
    with pytest.raises(ArtifactError, match="shapes"):
        check_plan(vit_spec(16, 4, 8, 2, 2, 3), tiny_plan)


@pytest.mark.parametrize("wrong", [99, operator("softmax").id])
def test_ids_that_are_unknown_or_of_the_other_kind_are_refused(tiny_spec: Spec, wrong: int) -> None:
    plan = uniform_plan(tiny_spec)
    layers = {kind: [ids.copy() for ids in arrays] for kind, arrays in plan.layers.items()}
    layers["gelu"][0][0] = wrong
    with pytest.raises(ArtifactError, match=f"gelu operator ids .*{wrong}"):
        check_plan(tiny_spec, plan_from_ids(plan.granularity, layers))


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.safetensors"
    path.write_bytes(b"not a plan")
    with pytest.raises(ArtifactError, match="not a readable plan"):
        load_plan(path)


def test_a_plan_from_before_norms_had_sites_has_them_exact(tiny_plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.safetensors"
    tensors = {f"{k}.{i}": a for k in ("gelu", "softmax") for i, a in enumerate(tiny_plan.layers[k])}
    path.write_bytes(save(tensors, metadata={"granularity": json.dumps({"gelu": "token", "softmax": "row"})}))
    found = load_plan(path)
    assert found.hash() == tiny_plan.hash()
    assert not found.replaces("norm")


def test_the_hash_of_a_plan_with_exact_norms_is_what_it_was_before_they_had_sites() -> None:
    spec = vit_spec(8, 4, 8, 2, 2, 3)
    plan = uniform_plan(spec, "identity", "squared_attn")
    digest = hashlib.sha256(b'{"gelu": "token", "softmax": "row"}')
    for kind, shape in (("gelu", (5,)), ("softmax", (2, 5))):
        for _ in range(2):
            digest.update(f"{kind}{shape}".encode())
            digest.update(np.full(shape, 1 if kind == "gelu" else 17, np.uint8).tobytes())
    assert plan.hash() == digest.hexdigest()
    assert uniform_plan(spec, "identity", "squared_attn", norm="fixed_norm").hash() != plan.hash()


def test_a_plan_with_replaced_norms_survives_a_round_trip(tmp_path: Path) -> None:
    spec = with_tokens(vit_spec(16, 4, 8, 3, 2, 3), [17, 5, 5])
    plan = uniform_plan(spec, granularity=Granularity(norm="class"), norm="reused_norm")
    save_plan(plan, tmp_path / "plan.safetensors")
    found = load_plan(tmp_path / "plan.safetensors")
    assert found.hash() == plan.hash()
    assert found.granularity == plan.granularity
    check_plan(spec, found)


def test_a_first_norm_that_had_nothing_to_reuse_stays_exact() -> None:
    spec = vit_spec(8, 4, 8, 3, 2, 3)
    plan = uniform_plan(spec, norm="reused_norm")
    assert plan.kept("norm") == [1, 0, 0]
    masks = [np.zeros(2, bool), np.zeros(2, bool), np.zeros(3, bool)]
    shapes = sites(spec, Granularity())
    others = {kind: [np.ones(s, bool) for s in shapes[kind]] for kind in ("gelu", "softmax")}
    assert plan_from_kept(Granularity(), others | {"norm": masks}).hash() == plan.hash()
    layers = {kind: [ids.copy() for ids in arrays] for kind, arrays in plan.layers.items()}
    layers["norm"][0][0] = operator("reused_norm").id
    with pytest.raises(ArtifactError, match="LayerNorm 0 of the plan reuses"):
        check_plan(spec, plan_from_ids(plan.granularity, layers))
    layers["norm"][0][0] = operator("fixed_norm").id
    with pytest.raises(ArtifactError, match="LayerNorm 1 of the plan reuses"):
        check_plan(spec, plan_from_ids(plan.granularity, layers))
    layers["norm"][0][0] = operator("linear_norm").id
    check_plan(spec, plan_from_ids(plan.granularity, layers))


def test_counts_of_norms_keep_norm1_first_and_the_final_one() -> None:
    spec = vit_spec(8, 4, 8, 3, 2, 3)
    plan = plan_from_counts(spec, [0] * 3, [0] * 3, norms=[2, 1, 0])
    exact, reused = operator("layer_norm").id, operator("reused_norm").id
    assert [ids.tolist() for ids in plan.layers["norm"]] == [
        [exact, exact],
        [exact, reused],
        [reused, reused, exact],
    ]
    assert plan_from_counts(spec, [0] * 3, [0] * 3).kept("norm") == [2, 2, 3]
    for counts, said in (([0, 1, 1], "the first LayerNorm is to be reused"), ([2, 3, 0], "a block has 2")):
        with pytest.raises(BudgetError, match=said):
            plan_from_counts(spec, [0] * 3, [0] * 3, norms=counts)
