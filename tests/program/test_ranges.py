"""Public ranges that no short form fits do not break the program."""

from __future__ import annotations

import numpy as np
import pytest

from privit.program.forms import EXP_TOLERANCE, short_exp
from privit.program.ranges import score_range

SIZES = (0.0, 1e-300, 1e-30, 1e-9, 1e-4, 1e-3, 0.02, 1.0, 10.0, 100.0, 199.0, 700.0, 1e6, 1e30)


def scores(drop: float, peak: float) -> dict[str, float]:
    return {f"blocks.0.softmax.{k}": v for k, v in {"drop": drop, "peak": peak, "mean_exp": 1.5}.items()}


@pytest.mark.parametrize("peak", SIZES)
@pytest.mark.parametrize("drop", SIZES)
def test_every_score_range_has_a_short_exp_within_tolerance_or_the_engines(drop: float, peak: float) -> None:
    found = score_range(scores(drop, peak), 0)
    if found is None:
        assert drop > 200 or peak > 20
        return
    assert found.low <= -drop
    assert found.high >= peak
    form = short_exp(found.low, found.high, 1 / 16)
    x = np.linspace(found.low, found.high, 1001)
    z, q = form.scale * x, form.quartic
    y = (z + q.a) ** 2
    value = 16 * ((y + z + q.b) * (y + q.c) + q.d) ** 2.0**form.squarings
    assert np.all(np.abs(value - np.exp(x)) <= 1.01 * EXP_TOLERANCE * np.maximum(1, np.exp(x)))
