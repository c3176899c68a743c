"""Shares: what is recovered is what was shared, and a masked result unmasks."""

from __future__ import annotations

import numpy as np
import pytest

from privit.cost.gates.circuits.gates import Plain, from_wires, to_wires
from privit.cost.gates.circuits.shares import RECOVERIES, Prime, Recovery
from privit.errors import RequestError

INPUTS = 10_000


def corner_values(recovery: Recovery) -> np.ndarray:
    half = recovery.modulus // 2
    rng = np.random.default_rng(0)
    ends = [-1, 0, 1, half - 1, -half + 1] + ([half, -half] if isinstance(recovery, Prime) else [-half])
    return np.concatenate([rng.integers(-half + 1, half, INPUTS), ends])[:, None]


@pytest.mark.parametrize("name", RECOVERIES)
def test_every_value_is_recovered_and_masked_again(name: str) -> None:
    recovery, rng = RECOVERIES[name], np.random.default_rng(1)
    values = corner_values(recovery)
    first, second = recovery.share(values, rng)
    assert np.array_equal((first + second) % recovery.modulus, values % recovery.modulus)
    gates = Plain()
    wires = [to_wires(share, recovery.width) for share in recovery.open_shares(first, second)]
    value = recovery.recover(gates, *wires)
    assert np.array_equal(from_wires(value, signed=True), values)
    masks = rng.integers(0, recovery.modulus, values.shape)
    masks[:2] = [[0], [recovery.modulus - 1]]
    out = recovery.mask(gates, value, to_wires(recovery.open_mask(masks), recovery.mask_width))
    assert np.array_equal(from_wires(out).astype(np.int64), (values + masks) % recovery.modulus)
    assert np.array_equal(recovery.signed(from_wires(out).astype(np.int64) - masks), values)


@pytest.mark.parametrize("name", RECOVERIES)
def test_a_share_alone_is_uniform(name: str) -> None:
    recovery = RECOVERIES[name]
    first, second = recovery.share(np.full((INPUTS, 1), 5), np.random.default_rng(0))
    for share in (first, second):
        counts, _ = np.histogram(share, bins=10, range=(0, recovery.modulus))
        # Five standard deviations of a binomial count with p = 1/10.
        assert np.abs(counts - INPUTS / 10).max() < 5 * np.sqrt(INPUTS * 0.09)


def test_a_prime_of_another_size_is_refused() -> None:
    with pytest.raises(RequestError, match="does not have 31 bits"):
        Prime(31, 65537)
