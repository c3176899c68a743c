"""A network may deliver bytes late, joined and in pieces: no good query fails for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from benchmarks.rough_network import Parties, Roughness, rough_parties
from serving import TOLERANCE, Served, digit_like, expected_logits


@pytest.fixture(scope="module")
def parties(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """Server and helper of aby3, which set up in a tenth of the time that cheetah takes."""
    with rough_parties(served.folder, tmp_path_factory.mktemp("rough"), "aby3", sessions=4) as found:
        yield found


def check_sessions(served: Served, parties: Parties, seeds: range, at_once: int) -> None:
    """Each of the sessions, so many at once, gets its own answer."""
    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda seed: parties.ask(Roughness(seed), digit_like(seed)), seeds))
    for seed, logits in zip(seeds, answers, strict=True):
        np.testing.assert_allclose(logits, expected_logits(served, digit_like(seed)), atol=TOLERANCE)


def test_parties_whose_bytes_come_late_and_joined_are_understood(served: Served, parties: Parties) -> None:
    late = Roughness(least_seconds=0.3, frame_seconds=0.3, data_seconds=0.0, joined=1.0, split=0.0)
    logits = parties.ask(late, digit_like(0))
    np.testing.assert_allclose(logits, expected_logits(served, digit_like(0)), atol=TOLERANCE)


def test_eighteen_sessions_of_three_parties_survive_random_delays_joins_and_splits(
    served: Served, parties: Parties
) -> None:
    check_sessions(served, parties, range(18), at_once=4)


def test_two_sessions_of_two_parties_survive_random_delays_joins_and_splits(
    served: Served, tmp_path: Path
) -> None:
    two = Parties(served.client_folder, "cheetah", served.server.address, None, tmp_path)
    check_sessions(served, two, range(18, 20), at_once=2)
