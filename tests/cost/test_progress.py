"""How far a query is: shares that only grow, and seconds from the machine's own pace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privit.artifact import Artifact, Public
from privit.cost.progress import EARLY_SHARE, NEARLY, Expected, Forecast, Progress, forecast
from privit.cost.spu.predict import estimate_spu
from privit.plan import Plan

COUNTS = st.floats(0, 1e9)


def test_the_forecast_is_what_privit_cost_predicts(tiny_public: Public, tiny_plan: Plan) -> None:
    found = forecast(Artifact(tiny_public, tiny_plan), "cheetah")
    cost = estimate_spu(tiny_public.spec, tiny_plan, "cheetah", ranges=tiny_public.ranges)
    assert found.query == Expected(cost["sent_bytes"], cost["rounds"], cost["seconds"])
    assert found.setup == Expected(cost["setup_bytes"], cost["setup_rounds"])


def test_where_nothing_can_be_predicted_there_is_no_end_in_sight(
    tiny_public: Public, tiny_plan: Plan
) -> None:
    assert forecast(Artifact(tiny_public, tiny_plan), "unheard-of") == Forecast()
    lost = Progress(100, 10, 1.0)
    assert (lost.share, lost.seconds_left) == (None, None)


@given(sent=COUNTS, more=COUNTS, rounds=COUNTS, expected_bytes=st.floats(1, 1e9), expected=st.floats(1, 1e6))
def test_the_share_only_grows_and_is_never_all(
    sent: float, more: float, rounds: float, expected_bytes: float, expected: float
) -> None:
    ahead = Expected(expected_bytes, expected, 3.0)
    before, after = Progress(sent, rounds, 1.0, ahead), Progress(sent + more, rounds + more, 2.0, ahead)
    assert before.share is not None
    assert after.share is not None
    assert 0 <= before.share <= after.share <= NEARLY


def test_seconds_left_are_first_the_predicted_and_then_this_machines_own() -> None:
    ahead = Expected(1000, 100, 20.0)
    assert Progress(0, 0, 2.0, ahead).seconds_left == 18.0
    assert Progress(0, 0, 30.0, ahead).seconds_left == 0.0
    assert Progress(500, 50, 40.0, ahead).seconds_left == pytest.approx(40.0)
    assert Progress(EARLY_SHARE * 1000, EARLY_SHARE * 100, 1.0, ahead).seconds_left == pytest.approx(9.0)
    assert Progress(500, 50, 40.0, Expected(1000, 100)).seconds_left is None


def test_several_queries_are_one_piece_of_work() -> None:
    assert Expected(10, 2, 0.5).times(4) == Expected(40, 8, 2.0)
    assert Expected(10, 2).times(4).seconds is None


def test_progress_as_plain_data_says_of_how_much() -> None:
    found = Progress(500, 50, 4.0, Expected(1000, 100, 8.0)).to_json()
    assert (found["share"], found["expected_bytes"], found["expected_rounds"]) == (0.5, 1000, 100)
    assert Progress(1, 1, 1.0).to_json()["expected_bytes"] is None
