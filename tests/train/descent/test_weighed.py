"""Losses of a kind that count more often buy more of that kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privit.config import SearchConfig, check_config, from_json, to_json, weigh_problems
from privit.cost.budgets.price import Price
from privit.errors import RequestError
from privit.operators import BY_NAME
from privit.spec import KINDS, Granularity, sites, vit_spec
from privit.train.descent.afford import Affordable, choices, weighed
from privit.train.training_free import TrainingFreeConfig

SPEC = vit_spec(8, 4, 16, 3, 2, 3, channels=1)
OPTIONS = choices(
    {},
    {"gelu": "quadratic", "softmax": "quadratic_attn"},
    {"gelu": "affine", "softmax": "static_attn"},
)


def losses() -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    falling = {kind: np.linspace(1, 0, len(OPTIONS[kind])) for kind in KINDS}
    return {
        kind: [np.multiply.outer(falling[kind], rng.random(shape)) for shape in shapes]
        for kind, shapes in sites(SPEC, Granularity()).items()
    }


def fitted_rows(times: float) -> int:
    """Rows that are more than static in a plan a third of the way from the cheapest to the dearest."""
    price = Price("bytes", "semi2k-benchmark")
    found = Affordable(SPEC, Granularity(), price, OPTIONS, weighed(losses(), {"softmax": times}), {})
    least, most = found.ladder.floor, found.ladder.cost(len(found.ladder.rungs) - 1)
    plan = found.plan(least + (most - least) / 3)
    static = BY_NAME["static_attn"].id
    return sum(int((layer != static).sum()) for layer in plan.layers["softmax"])


def test_what_is_weighed_more_is_bought_first() -> None:
    assert fitted_rows(1e-3) < fitted_rows(1e3)


def test_only_the_named_kind_counts_more() -> None:
    before, after = losses(), weighed(losses(), {"softmax": 3.0})
    np.testing.assert_array_equal(after["gelu"][0], before["gelu"][0])
    np.testing.assert_array_equal(after["softmax"][1], 3 * before["softmax"][1])


def test_a_search_hands_its_weights_on_and_writes_none_that_are_usual() -> None:
    config = replace(SearchConfig(), weigh={"softmax": 3.0})
    assert TrainingFreeConfig.of(config).weigh == {"softmax": 3.0}
    assert from_json(SearchConfig, to_json(config)) == config
    assert "weigh" not in to_json(SearchConfig())


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), True, "3"])
def test_a_weight_that_makes_no_sense_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="softmax is weighed"):
        check_config(replace(SearchConfig(), weigh={"softmax": value}))


def test_a_kind_that_is_none_is_refused_by_name() -> None:
    assert weigh_problems({"soft": 2.0}) == ["weigh names 'soft'; known: gelu, softmax, norm"]
