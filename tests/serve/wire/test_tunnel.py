"""Frames, counts and shaping of the one connection between two parties."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privit.cost.network import Network
from privit.errors import ConnectionFailed
from privit.serve.measure.sessions import measure_session
from privit.serve.wire.frames import (
    CONTROL_LIMIT,
    HEADER,
    Frame,
    FrameError,
    Kind,
    RemoteError,
    check_header,
    decode_message,
    encode_message,
    pack,
)
from privit.serve.wire.gate import refuse
from privit.serve.wire.meter import PushMeter
from privit.serve.wire.shaping import ShapedLine
from privit.serve.wire.tunnel import SilentPeer, Tunnel

PATIENCE_SECONDS = 60.0
"""Longer than anything takes here, on however busy a machine."""


async def joined(network: Network | None = None) -> tuple[Tunnel, Tunnel]:
    """Two started ends of one tunnel."""
    ends = []
    for first, sock in enumerate(socket.socketpair()):
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        ends.append(Tunnel(reader, writer, first=not first, network=network if first else None))
        ends[-1].start()
    return ends[0], ends[1]


def push(key: bytes, value: bytes) -> bytes:
    """A message of the engine's link, as brpc writes it."""
    meta = b"\x0a\x04meta"
    body = b"\x08\x01\x12" + bytes([len(key)]) + key + b"\x1a" + _varint(len(value)) + value
    return struct.pack(">4sII", b"PRPC", len(meta) + len(body), len(meta)) + meta + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_any_nine_bytes_are_a_frame_within_its_limit_or_refused(header: bytes) -> None:
    with contextlib.suppress(FrameError):
        kind, _, length = check_header(header)
        assert kind in (Kind.CONTROL, Kind.OPEN, Kind.DATA, Kind.CLOSE)
        assert length <= 256 << 10


@given(st.binary(max_size=200))
def test_any_control_payload_is_a_known_message_or_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        decode_message(payload)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "go", "number": 1},
        {"type": "go", "number": True, "left": 1},
        {"type": "go", "number": 1, "left": 1, "extra": 1},
        {"type": "go", "number": "1", "left": 1},
        {"type": "exec", "code": "1"},
        {"type": ["go"]},
        {"type": "hello", "version": 1, "purpose": "q", "description": {"a": {}}, "token": "", "rank": 1},
        [],
        None,
    ],
)
def test_a_message_with_other_fields_or_types_is_refused(message: object) -> None:
    with pytest.raises(FrameError):
        decode_message(json.dumps(message).encode())


def test_a_message_survives_the_way_and_a_long_one_is_not_sent() -> None:
    fields = {"code": "busy", "message": "m", "hint": "h", "name": "", "value": ""}
    assert decode_message(encode_message("error", **fields)) == {"type": "error"} | fields
    with pytest.raises(FrameError, match="more than"):
        encode_message("error", **(fields | {"message": "x" * CONTROL_LIMIT}))


def test_a_frame_does_not_print_what_it_carries() -> None:
    assert "secret" not in repr(Frame(Kind.DATA, 3, b"secret"))


def test_what_the_other_side_says_cannot_write_on_a_terminal() -> None:
    error = RemoteError({"code": "?", "message": "a\x1b[2Jb\nc", "hint": "", "name": "", "value": ""})
    assert error.message == "a[2Jbc"
    assert error.code == "unknown"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=20), st.integers(1, 3000))
def test_pushes_are_counted_however_the_stream_is_cut(pushes: list[tuple[bool, int]], step: int) -> None:
    stream = b"".join(
        push(b"ACK\x01\x02" if ack else b"root:%d" % i, bytes(size)) for i, (ack, size) in enumerate(pushes)
    )
    meter = PushMeter()
    for start in range(0, len(stream), step):
        meter.feed(stream[start : start + step])
    assert meter.actions == sum(not ack for ack, _ in pushes)
    assert meter.engine_bytes == sum(size for ack, size in pushes if not ack)


def test_a_stream_of_another_protocol_is_not_counted() -> None:
    meter = PushMeter()
    meter.feed(b"GET / HTTP/1.1\r\n" * 10)
    assert (meter.actions, meter.engine_bytes) == (0, 0)


def test_engine_bytes_cross_the_tunnel_unchanged_and_are_counted_on_both_ends(tmp_path: Path) -> None:
    sent = push(b"root:1", bytes(range(256)) * 2000) + push(b"ACK", b"1") + push(b"root:2", b"x")

    async def cross() -> None:
        near, far = await joined()
        arrived = asyncio.get_running_loop().create_future()

        async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set_result(await reader.readexactly(len(sent)))
            writer.close()

        listener = await asyncio.start_unix_server(engine, str(tmp_path / "far-engine"))
        await far.attach(tmp_path / "far-engine", tmp_path / "far-peer")
        await near.attach(tmp_path / "near-engine", tmp_path / "near-peer")
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "near-peer"))
        writer.write(sent)
        assert await asyncio.wait_for(arrived, PATIENCE_SECONDS) == sent
        ours, _ = near.counts()
        _, theirs = far.counts()
        assert (ours.actions, ours.engine_bytes) == (theirs.actions, theirs.engine_bytes) == (2, 512_001)
        assert ours.wire_bytes == theirs.wire_bytes > len(sent)
        writer.close()
        listener.close()
        await near.close()
        await far.close()

    asyncio.run(cross())


def test_an_engine_connection_before_the_welcome_ends_the_connection() -> None:
    async def intrude() -> None:
        near, far = await joined()
        await near._put(pack(Kind.OPEN, near._next_channel))
        with pytest.raises(FrameError, match="none was expected"):
            await far.receive(PATIENCE_SECONDS)
        await near.close()
        await far.close()

    asyncio.run(intrude())


def test_a_party_that_still_sends_hears_why_it_was_refused() -> None:
    async def send_on() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        refusing = Tunnel(*await asyncio.open_connection(sock=near), first=True)
        refusing.start()
        reader, writer = await asyncio.open_connection(sock=far)

        async def refuse_and_close() -> None:
            await refuse(refusing, "engine", "stopped")
            await refusing.close()

        closing = asyncio.ensure_future(refuse_and_close())
        for _ in range(20):
            writer.write(pack(Kind.DATA, 1, b"x" * 1000))
            await asyncio.sleep(0.01)
        refused = Tunnel(reader, writer, first=False)
        refused.start()
        with pytest.raises(RemoteError, match="stopped"):
            await refused.receive(PATIENCE_SECONDS)
        await refused.close()
        await closing

    asyncio.run(send_on())


def test_silence_and_a_closed_connection_are_told_apart() -> None:
    async def wait() -> None:
        near, far = await joined()
        with pytest.raises(SilentPeer, match=r"nothing for 0\.05 seconds"):
            await far.receive(0.05)
        await near.close()
        with pytest.raises(Exception, match="closed the connection"):
            await far.receive(PATIENCE_SECONDS)
        await far.close()

    asyncio.run(wait())


def test_who_says_goodbye_and_leaves_is_known_to_have_said_it() -> None:
    async def leave() -> None:
        near, far = await joined()
        await near.send("bye")
        await near.close()
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            await far.guard(asyncio.sleep(PATIENCE_SECONDS))
        assert far.goodbye
        assert not near.goodbye
        await far.close()

    asyncio.run(leave())


def test_work_is_cancelled_when_the_other_side_goes_away() -> None:
    async def work() -> None:
        near, far = await joined()
        working = asyncio.ensure_future(far.guard(asyncio.sleep(60)))
        await near.close()
        with pytest.raises(Exception, match="closed the connection"):
            await asyncio.wait_for(working, PATIENCE_SECONDS)
        await far.close()

    asyncio.run(work())


def test_a_shaped_line_keeps_order_delay_and_bandwidth() -> None:
    network = Network(rtt_ms=60.0, bandwidth_mbit=8.0)  # 30 ms one way, a byte a microsecond
    arrivals: list[tuple[bytes, float]] = []

    async def run() -> None:
        async def deliver(data: bytes) -> None:
            arrivals.append((data[:1], time.monotonic()))

        line = ShapedLine(network, deliver)
        task = asyncio.ensure_future(line.run())
        started = time.monotonic()
        for name in (b"a", b"b", b"c"):
            await line.put(name * 20_000)
        while len(arrivals) < 3:
            await asyncio.sleep(0.001)
        task.cancel()
        assert [name for name, _ in arrivals] == [b"a", b"b", b"c"]
        for place, (_, at) in enumerate(arrivals, 1):
            assert at - started >= 0.03 + 0.02 * place - 0.001

    asyncio.run(run())


def test_a_control_message_takes_the_delay_of_the_network_in_both_directions() -> None:
    async def run() -> None:
        near, far = await joined(Network(40.0, 1000.0))
        for sender, receiver in ((near, far), (far, near)):
            started = time.monotonic()
            await sender.send("bye")
            await receiver.receive(PATIENCE_SECONDS)
            assert time.monotonic() - started >= 0.02
        await near.close()
        await far.close()

    asyncio.run(run())


def test_a_measured_session_pays_the_delay_once_for_each_action(tiny_folder: Path) -> None:
    far = measure_session(tiny_folder, "semi2k-benchmark", "20,1000", queries=1)
    assert far["rounds"] > 50
    assert far["seconds"] > 0.8 * far["rounds"] * 0.010
    assert (far["private"], far["measured_on"]) == (False, "processes")
