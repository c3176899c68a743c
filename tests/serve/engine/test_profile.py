from __future__ import annotations

import pytest

from privit.serve.engine.profile import Counts, Traffic, read_all_parties, read_two_party

LINE = "2026-01-01 00:00:00.000 [info] [api.cc:printProfilingData:{}] "
TWO_PARTIES = (
    LINE.format(172) + "[Profiling] SPU execution f completed, input processing took 2.7e-06s, "
    "execution took 0.007s, output processing took 4.2e-06s, total time 0.0078s.\n"
    + LINE.format(220) + "HLO profiling: total time 0.0043\n"
    + LINE.format(223) + "- pphlo.dot, executed 2 times, duration 0.0038s, "
    "send bytes 1664 recv bytes 1700, send actions 4, recv actions 5\n"
    + LINE.format(223) + "- pphlo.multiply, executed 1 times, duration 1.4e-05s, "
    "send bytes 640 recv bytes 600, send actions 2, recv actions 2\n"
    + LINE.format(233) + "Link details: total send bytes 2304, recv bytes 2300, "
    "send actions 6, recv actions 7\n"
)  # fmt: skip


def test_what_one_party_receives_the_other_has_sent() -> None:
    counts = read_two_party(TWO_PARTIES)
    assert counts.ranks == (Traffic(2304, 6), Traffic(2300, 7))
    assert (counts.sent_bytes, counts.rounds) == (2304, 7)
    assert counts.operations == {"dot": Traffic(1664, 4), "multiply": Traffic(640, 2)}


def test_three_parties_stand_from_most_bytes_to_fewest() -> None:
    other = TWO_PARTIES.replace("total send bytes 2304", "total send bytes 9000")
    counts = read_all_parties(TWO_PARTIES + other)
    assert [rank.sent_bytes for rank in counts.ranks] == [9000, 2304]


def test_counts_add_up_operation_by_operation() -> None:
    once = read_two_party(TWO_PARTIES)
    twice = once + once
    assert twice.sent_bytes == 2 * once.sent_bytes
    assert twice.operations["dot"] == Traffic(3328, 8)
    assert twice.operation_seconds["dot"] == pytest.approx(0.0076)
    shown = twice.to_json()["operations"]
    assert shown["dot"] == {"sent_bytes": 3328, "rounds": 8, "seconds": pytest.approx(0.0076)}


def test_operations_stand_from_the_slowest_to_the_fastest() -> None:
    slow = TWO_PARTIES.replace("duration 1.4e-05s", "duration 2.5s")
    assert list(read_two_party(slow).by_operation()) == ["multiply", "dot"]
    assert list(read_two_party(TWO_PARTIES).by_operation()) == ["dot", "multiply"]


def test_of_three_parties_an_operation_takes_as_long_as_at_the_slowest() -> None:
    slow = TWO_PARTIES.replace("duration 0.0038s", "duration 0.5s")
    assert read_all_parties(TWO_PARTIES + slow).operation_seconds["dot"] == 0.5


def test_what_a_party_does_not_compute_it_waits() -> None:
    counts = Counts((Traffic(), Traffic()), seconds=2.0, computing=(1.5, 0.25))
    assert counts.parties() == [
        {"name": "server", "computing_seconds": 1.5, "waiting_seconds": 0.5},
        {"name": "client", "computing_seconds": 0.25, "waiting_seconds": 1.75},
    ]


def test_a_log_without_link_details_is_not_taken_for_zero_bytes() -> None:
    with pytest.raises(ValueError, match="no link details"):
        read_two_party("nothing here")
