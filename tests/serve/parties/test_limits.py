"""Limits and the ledger of queries."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from privit.errors import RequestError, WorkError
from privit.serve.parties.limits import Limits, QueryLedger
from privit.serve.parties.places import Places, Refused
from privit.serve.wire.tls import LOOPBACK_CLIENT, Peer


def test_a_client_gets_its_queries_and_no_more_across_restarts(tmp_path: Path) -> None:
    for expected in (2, 1, 0, None, None):
        ledger = QueryLedger(tmp_path / "queries.sqlite")
        assert ledger.take("alice", 3) == expected
        ledger.close()
    ledger = QueryLedger(tmp_path / "queries.sqlite")
    assert ledger.asked("alice") == 3
    assert ledger.take("bob", 3) == 2
    ledger.close()


def test_without_a_limit_queries_are_still_counted(tmp_path: Path) -> None:
    ledger = QueryLedger(tmp_path / "queries.sqlite")
    assert [ledger.take("alice", None) for _ in range(3)] == [-1, -1, -1]
    assert ledger.asked("alice") == 3
    assert ledger.take("carol", 0) is None
    ledger.close()


def test_two_sessions_of_one_client_cannot_share_its_last_query(tmp_path: Path) -> None:
    path, taken = tmp_path / "queries.sqlite", []
    QueryLedger(path).close()

    def ask() -> None:
        ledger = QueryLedger(path)
        taken.extend(ledger.take("alice", 10) for _ in range(5))
        ledger.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(left is not None for left in taken) == 10


def test_only_the_owner_can_read_the_ledger(tmp_path: Path) -> None:
    QueryLedger(tmp_path / "queries.sqlite").close()
    assert (tmp_path / "queries.sqlite").stat().st_mode & 0o077 == 0


def test_limits_that_make_no_sense_are_refused_together() -> None:
    with pytest.raises(RequestError, match="2 problems"):
        Limits(sessions=0, queries=-1)
    with pytest.raises(RequestError, match="2 problems"):
        Limits(places_each=0, address_share=1.5)


def test_a_query_that_cannot_be_counted_on_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    ledger = QueryLedger(tmp_path / "queries.sqlite")
    ledger._database.execute("PRAGMA max_page_count = 1")
    with pytest.raises(WorkError, match=r"queries\.sqlite cannot be used: database or disk is full") as error:
        _fill(ledger)
    assert "make room" in error.value.hint
    ledger.close()


def _fill(ledger: QueryLedger) -> None:
    for number in range(10_000):
        ledger.take(f"{number:0500}", None)


def test_a_ledger_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"cannot write to .*file: File exists"):
        QueryLedger(tmp_path / "file" / "queries.sqlite")
    (tmp_path / "queries.sqlite").mkdir()
    with pytest.raises(WorkError, match="unable to open database file"):
        QueryLedger(tmp_path / "queries.sqlite")


PEER, OTHER = (Peer(LOOPBACK_CLIENT, "", address) for address in ("127.0.0.1", "127.0.0.2"))


class Caller:
    """The part of a tunnel that the line of waiting clients uses."""

    def __init__(self) -> None:
        self.told: list[int] = []

    async def send(self, kind: str, position: int) -> None:
        assert kind == "wait"
        self.told.append(position)

    async def guard(self, work: object) -> object:
        return await work  # type: ignore[misc]


def test_places_are_given_in_order_and_a_full_line_is_refused() -> None:
    async def run() -> None:
        places, order = Places(Limits(sessions=1, queue=2, address_share=1.0)), []
        leave = [asyncio.Event() for _ in range(3)]

        async def client(number: int) -> None:
            async with places.place(Caller(), PEER):  # type: ignore[arg-type]
                order.append(number)
                await leave[number].wait()

        tasks = []
        for number in range(3):
            tasks.append(asyncio.ensure_future(client(number)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert (places.running, places.waiting, order) == (1, 2, [0])
        with pytest.raises(Refused, match="all 1 sessions are taken and 2 clients wait"):
            async with places.place(Caller(), OTHER):  # type: ignore[arg-type]
                pass
        for number in range(3):
            leave[number].set()
            await tasks[number]
        assert order == [0, 1, 2]
        assert (places.running, places.waiting) == (0, 0)

    asyncio.run(run())


def test_a_client_that_stops_waiting_loses_nobody_a_place() -> None:
    async def run() -> None:
        places = Places(Limits(sessions=1, queue=4))
        async with places.place(Caller(), PEER):  # type: ignore[arg-type]
            waiting = [asyncio.ensure_future(_enter(places)) for _ in range(3)]
            await asyncio.sleep(0.01)
            waiting[0].cancel()
            await asyncio.gather(waiting[0], return_exceptions=True)
        # The second is called and goes away in the same moment: the third must still get in.
        waiting[1].cancel()
        await asyncio.wait_for(waiting[2], 5)
        assert (places.running, places.waiting) == (0, 0)

    asyncio.run(run())


def test_whoever_waits_is_sent_away_when_the_server_stops() -> None:
    async def run() -> None:
        places = Places(Limits(sessions=1, queue=4))
        async with places.place(Caller(), PEER):  # type: ignore[arg-type]
            waiting = asyncio.ensure_future(_enter(places))
            await asyncio.sleep(0.01)
            places.stop()
            with pytest.raises(Refused, match="shutting down"):
                await waiting

    asyncio.run(run())


@pytest.mark.parametrize(
    ("greedy", "modest", "most"),
    [
        (Peer("aa", "client", "192.0.2.1"), Peer("bb", "client", "192.0.2.1"), 2),
        (PEER, OTHER, 6),
    ],
    ids=["certificate", "address"],
)
def test_one_client_cannot_hold_every_place(greedy: Peer, modest: Peer, most: int) -> None:
    async def run() -> None:
        places = Places(Limits(sessions=4, queue=4))
        holding = [asyncio.ensure_future(_hold(places, greedy)) for _ in range(most)]
        await asyncio.sleep(0.01)
        with pytest.raises(Refused, match=f"already has {most} of the server's places") as error:
            await _hold(places, greedy)
        assert error.value.code == "busy"
        other = asyncio.ensure_future(_hold(places, modest))
        await asyncio.sleep(0.01)
        assert (places.running + places.waiting, other.done()) == (most + 1, False)
        for task in (*holding, other):
            task.cancel()
        await asyncio.gather(*holding, other, return_exceptions=True)
        assert (places.running, places.waiting) == (0, 0)
        await asyncio.wait_for(_enter(places), 5)  # and what was given back can be had again

    asyncio.run(run())


async def _hold(places: Places, peer: Peer) -> None:
    async with places.place(Caller(), peer):  # type: ignore[arg-type]
        await asyncio.Event().wait()


async def _enter(places: Places) -> None:
    async with places.place(Caller(), PEER):  # type: ignore[arg-type]
        pass


def test_a_batch_counts_as_many_queries_as_it_has_images(tmp_path: Path) -> None:
    ledger = QueryLedger(tmp_path / "queries.sqlite")
    assert ledger.take("alice", 10, images=8) == 2
    assert ledger.take("alice", 10, images=8) is None
    assert ledger.take("alice", 10) == 1
    assert ledger.take("bob", 7, images=8) is None
    assert (ledger.asked("alice"), ledger.asked("bob")) == (9, 0)
    ledger.close()


@pytest.mark.parametrize("batch", [0, 65])
def test_a_batch_limit_that_is_no_number_of_images_is_refused(batch: int) -> None:
    with pytest.raises(RequestError, match=f"batch is {batch}, not a number of images from 1 to 64"):
        Limits(batch=batch)
