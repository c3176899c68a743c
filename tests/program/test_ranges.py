"""Public ranges that no short form fits do not break the program."""

from __future__ import annotations

import numpy as np
import pytest

from privit.program.forms import EXP_TOLERANCE, short_exp
from privit.program.ranges import MOST_SCORES, believable, score_range

SMALL = (0.0, 1e-300, 1e-30, 1e-9, 1e-4, 1e-3, 0.02, 1.0, 10.0)


def scores(drop: float, peak: float) -> dict[str, float]:
    return {f"blocks.0.softmax.{k}": v for k, v in {"drop": drop, "peak": peak, "mean_exp": 1.5}.items()}


@pytest.mark.parametrize("peak", [*SMALL, MOST_SCORES[1]])
@pytest.mark.parametrize("drop", [*SMALL, 100.0, MOST_SCORES[0]])
def test_every_score_range_has_a_short_exp_within_tolerance(drop: float, peak: float) -> None:
    found = score_range(scores(drop, peak), 0)
    assert found is not None
    assert found.low <= -drop <= peak <= found.high
    form = short_exp(found.low, found.high, 1 / 16)
    x = np.linspace(found.low, found.high, 1001)
    z, q = form.scale * x, form.quartic
    y = (z + q.a) ** 2
    value = 16 * ((y + z + q.b) * (y + q.c) + q.d) ** 2.0**form.squarings
    assert np.all(np.abs(value - np.exp(x)) <= 1.01 * EXP_TOLERANCE * np.maximum(1, np.exp(x)))


@pytest.mark.parametrize(("drop", "peak"), [(201.0, 1.0), (1.0, 21.0), (700.0, 0.0), (1e30, 1e30)])
def test_scores_too_far_apart_run_the_engines_softmax(drop: float, peak: float) -> None:
    assert score_range(scores(drop, peak), 0) is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e8])
def test_logits_that_no_model_of_the_range_gives_are_not_believed(wrong: float) -> None:
    assert believable({"logits": 7.3}, np.array([0.1, -20.0, 3.0]))
    assert not believable({"logits": 7.3}, np.array([0.1, wrong, 3.0]))


def test_without_a_range_every_finite_answer_is_believed() -> None:
    assert believable({}, np.array([1e8]))
    assert not believable({}, np.array([np.nan]))
