"""What to remove next on the engine: each row says what pricing the plan without it would say."""

from __future__ import annotations

import pytest

from privit.cost.network import network
from privit.cost.spu.explain import UNITS, explain_spu
from privit.cost.spu.predict import estimate_spu, query_cost, query_seconds
from privit.cost.spu.table import PROTOCOLS, shipped_table
from privit.errors import RequestError
from privit.plan import plan_from_counts, uniform_plan
from privit.spec import vit_spec

SPEC = vit_spec(16, 4, 32, 3, 2, classes=4, channels=1)
PLAN = plan_from_counts(SPEC, [6, 0, 2], [0, 9, 0])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("unit", UNITS)
def test_every_layer_and_kind_that_keeps_any_has_a_row(protocol: str, unit: str) -> None:
    rows = explain_spu(SPEC, PLAN, unit, protocol, "wan")
    assert {(row.layer, row.kind, row.sites) for row in rows} == {
        (0, "gelu", 6),
        (2, "gelu", 2),
        (1, "softmax", 9),
        (0, "norm", 1),
        (1, "norm", 2),
        (2, "norm", 3),
    }
    savings = [row.group_saving for row in rows]
    assert savings == sorted(savings, reverse=True)
    assert savings[-1] > 0
    assert {row.unit for row in rows} == {unit}


def test_removing_a_group_saves_what_its_row_says() -> None:
    (row,) = (r for r in explain_spu(SPEC, PLAN, "seconds", "cheetah", "wan") if r.kind == "softmax")
    table, without = shipped_table("cheetah"), plan_from_counts(SPEC, [6, 0, 2], [0, 0, 0])
    before, after = (
        query_seconds(table, query_cost(table, SPEC, plan), network("wan")) for plan in (PLAN, without)
    )
    assert row.group_saving == pytest.approx(before - after)
    assert row.share == pytest.approx((before - after) / before)
    assert before == pytest.approx(estimate_spu(SPEC, PLAN, "cheetah", "wan")["seconds"])


def test_one_site_of_many_saves_bytes_and_no_round() -> None:
    (by_bytes, by_rounds) = (
        explain_spu(SPEC, PLAN, unit, "semi2k-benchmark") for unit in ("bytes", "rounds")
    )
    (site,) = (row for row in by_bytes if (row.layer, row.kind) == (0, "gelu"))
    assert 0 < site.site_saving < site.group_saving
    (site,) = (row for row in by_rounds if (row.layer, row.kind) == (0, "gelu"))
    assert site.site_saving == 0
    assert site.group_saving > 0


def test_a_network_with_a_delay_makes_rounds_matter() -> None:
    near, far = (sum(r.group_saving for r in explain_spu(SPEC, PLAN, network=n)) for n in ("lan", "wan"))
    assert far > near


def test_nothing_is_left_to_explain_where_nothing_is_exact() -> None:
    assert explain_spu(SPEC, uniform_plan(SPEC, "identity", "squared_attn", norm="fixed_norm")) == []


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(RequestError, match="no unit is called 'hours'"):
        explain_spu(SPEC, PLAN, "hours")
