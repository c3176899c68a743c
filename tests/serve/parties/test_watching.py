"""Who looks on while a client works sees it move and sees its bytes, and can stop nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from serving import Served, check_answers

from privit.serve.parties.client import Cost, connect
from privit.serve.parties.watching import Watcher, watching


def test_a_watcher_hears_of_set_up_and_query_and_sees_what_the_server_gets(
    served: Served, tmp_path: Path
) -> None:
    heard: list[tuple[str, Cost]] = []
    pieces: list[bytes] = []
    watcher = Watcher(lambda work, cost: heard.append((work, cost)), pieces.append)
    with connect(served.client_folder, served.server.address, state=tmp_path, watcher=watcher) as client:
        before = sum(map(len, pieces))
        assert before > 1_000_000, "the set-up of cheetah sends megabytes"
        check_answers(served, client, seed=1)
        answer = sum(map(len, pieces)) - before
    for work in ("setup", "query"):
        costs = [cost for which, cost in heard if which == work]
        assert costs
        assert [c.rounds for c in costs] == sorted(c.rounds for c in costs)
        assert [c.sent_bytes for c in costs] == sorted(c.sent_bytes for c in costs)
    assert 1_000_000 < answer < client.setup.wire_bytes


def test_a_watcher_that_fails_is_told_no_more_and_stops_nothing() -> None:
    calls = []

    def fail(work: str, cost: int) -> None:
        calls.append((work, cost))
        raise ValueError("the terminal has gone")

    async def run() -> str:
        async with watching(Watcher(fail), "query", lambda: 7):
            await asyncio.sleep(0.5)
            return "answer"

    assert asyncio.run(run()) == "answer"
    assert calls == [("query", 7)]


def test_what_fails_under_watch_fails_as_it_would_alone() -> None:
    async def run() -> None:
        async with watching(Watcher(lambda work, cost: None), "query", lambda: 0):
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        asyncio.run(run())
