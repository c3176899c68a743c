"""Networks: presets, pairs, and the formula for seconds."""

from __future__ import annotations

import json

import pytest

from privit.cost.network import NETWORKS, Network, network
from privit.errors import RequestError


def test_presets_and_pairs_are_read() -> None:
    assert network("LAN") == NETWORKS["lan"]
    assert network("wan") == Network(40, 352)
    assert network("20, 100") == Network(20, 100)
    assert network("loopback").seconds(1.5, sent_bytes=1e9, rounds=1000) == 1.5
    assert json.loads(json.dumps(network("loopback").to_json(), allow_nan=False))["bandwidth_mbit"] is None


@pytest.mark.parametrize("text", ["", "adsl", "20", "20,100,3", "x,y"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match="40,100"):
        network(text)


@pytest.mark.parametrize("text", ["-1,100", "10,0", "nan,100", "1e9,1"])
def test_networks_that_cannot_exist_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="does not exist"):
        network(text)


def test_seconds_are_compute_plus_transfer_plus_half_a_round_trip_for_each_action() -> None:
    found = Network(rtt_ms=40, bandwidth_mbit=80).seconds(1.5, sent_bytes=20e6, rounds=100, slope=1.1)
    assert found == pytest.approx(1.5 + 2.0 + 100 * 0.020 * 1.1)
