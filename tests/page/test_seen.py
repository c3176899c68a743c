"""The sample of what the server saw is of the bytes that were sent, and spread over all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privit.page.seen import ROW_BYTES, ROWS, Seen


def stream(size: int) -> bytes:
    """Bytes in which every place of four bytes is different."""
    return np.arange(size // 4 + 1, dtype="<u4").tobytes()[:size]


@given(sizes=st.lists(st.integers(0, 40_000), max_size=60))
def test_every_row_stands_in_the_stream_however_it_is_cut(sizes: list[int]) -> None:
    whole, seen, at = stream(sum(sizes)), Seen(), 0
    for size in sizes:
        seen.feed(whole[at : at + size])
        at += size
    sample = seen.sample()
    assert (seen.sent_bytes, seen.pieces) == (len(whole), len(sizes))
    assert len(sample) % ROW_BYTES == 0
    rows = [sample[i : i + ROW_BYTES] for i in range(0, len(sample), ROW_BYTES)]
    places = [int.from_bytes(row[:4], "little") * 4 for row in rows]
    assert all(whole[place : place + ROW_BYTES] == row for place, row in zip(places, rows, strict=True))
    assert len(rows) == min(ROWS, len(whole) // ROW_BYTES)
    # Spread over all of it: no gap is larger than four times the even one.
    gaps = np.diff([*places, len(whole)]) if places else np.zeros(1)
    assert gaps.max(initial=0) <= max(4 * len(whole) / ROWS, 2 * ROW_BYTES)


def test_a_long_stream_takes_little_memory() -> None:
    seen, piece = Seen(), bytes(1 << 16)
    for _ in range(2000):
        seen.feed(piece)
    assert len(seen._rows) < 2 * ROWS
    assert len(seen.sample()) == ROWS * ROW_BYTES


def test_nothing_sent_is_nothing_seen() -> None:
    assert Seen().sample() == b""
