"""A network may deliver bytes late, joined and in pieces: no good query fails for it."""

from __future__ import annotations

from benchmarks.rough_network import Roughness, rough_network
from serving import Served, check_answers

from privit.serve.parties.client import connect


def test_a_server_whose_bytes_come_late_and_joined_is_understood(served: Served) -> None:
    late = Roughness(least_seconds=0.3, frame_seconds=0.3, data_seconds=0.0, joined=1.0, split=0.0)
    with (
        rough_network(served.server.address, late) as address,
        connect(served.client_folder, address) as client,
    ):
        check_answers(served, client, 1)
