"""What another party's engine may send is bounded by what the program can need."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from serving import Served, check_answers, children, digit_like

from privit.artifact import load_artifact
from privit.plan import plan_from_counts
from privit.serve.engine.allowance import SLACK_BYTES, allowance_of
from privit.serve.engine.process import EngineProcess
from privit.serve.parties.client import Client
from privit.serve.wire.addresses import parse_address
from privit.serve.wire.frames import Kind, decode_message, encode_message, pack, read_frame
from privit.serve.wire.handshake import WIRE_VERSION

SERVICE = b"org.interconnection.link.ReceiverService"
IN_FLIGHT_BYTES = 16 << 20
"""What sockets hold between a party that has stopped reading and one that has not noticed."""


def field(number: int, data: bytes) -> bytes:
    """A protobuf field of bytes."""
    size, length = len(data), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + data


def push(number: int, value: bytes) -> bytes:
    """A message to the engine under a key that nobody waits for."""
    meta = field(1, field(1, SERVICE) + field(2, b"Push")) + bytes([0x20, number % 127 + 1])
    body = b"\x08\x01" + field(2, b"nobody:%d" % number) + field(3, value)
    return b"PRPC" + (len(meta) + len(body)).to_bytes(4, "big") + len(meta).to_bytes(4, "big") + meta + body


async def flood(address: str, description: dict[str, str], most_bytes: float) -> int:
    """How many engine bytes a welcomed client could send before the server ended the connection."""
    reader, writer = await asyncio.open_connection(*parse_address(address))
    hello = {"version": WIRE_VERSION, "purpose": "query", "token": "", "rank": 1}
    writer.write(pack(Kind.CONTROL, 0, encode_message("hello", description=description, **hello)))
    frame = await read_frame(reader)
    assert frame is not None
    assert decode_message(frame.payload)["type"] == "welcome"
    writer.write(pack(Kind.OPEN, 1))
    reading, sent = asyncio.ensure_future(reader.read(-1)), 0
    with contextlib.suppress(OSError):
        while sent < most_bytes and not reading.done():
            data = push(sent, b"x" * 200_000)
            writer.write(pack(Kind.DATA, 1, data))
            await writer.drain()
            sent += len(data)
    writer.close()
    await asyncio.gather(reading, return_exceptions=True)
    return sent


def test_a_client_that_fills_the_servers_engine_is_cut_off_at_its_allowance(
    served: Served, client: Client, tmp_path: Path
) -> None:
    allowed = allowance_of(served.artifact, "cheetah").setup_bytes
    log = served.server.state / "server.log"
    before = log.read_text()

    async def attack() -> int:
        engine = await EngineProcess.start(served.client_folder, "cheetah", "client", tmp_path / "log")
        try:
            return await flood(served.server.address, engine.description, 10 * allowed)
        finally:
            await engine.stop()

    sent = asyncio.run(attack())
    assert allowed / 2 < sent < allowed + IN_FLIGHT_BYTES
    message = f"more than the {allowed / 1e6:.0f} MB of engine messages that this program can need"
    assert message in log.read_text()[len(before) :]
    check_answers(served, client, 3)


def test_a_good_session_needs_little_of_its_allowance(served: Served, client: Client) -> None:
    allowance = allowance_of(served.artifact, "cheetah")
    assert client.setup.wire_bytes < allowance.setup_bytes / 2
    for seed in range(4):
        answer = client.predict(digit_like(seed))
        # Of each direction; so that a session of a thousand queries is as far from its end as one of four.
        assert answer.wire_bytes / 2 < 0.7 * allowance.query_bytes


def test_an_allowance_grows_with_the_plan(served: Served) -> None:
    artifact = load_artifact(served.client_folder)
    spec = artifact.spec
    cheap, dear = (
        allowance_of(type(artifact)(artifact.public, plan_from_counts(spec, [n], [n])), "cheetah")
        for n in (0, 2)
    )
    assert cheap.setup_bytes > SLACK_BYTES
    assert cheap.query_bytes < dear.query_bytes


def test_the_address_space_of_a_worker_is_bounded(served: Served) -> None:
    worker = children(served.server.process.pid)[0]
    lines = Path(f"/proc/{worker}/limits").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Max address space"))
    assert "unlimited" not in line


def test_what_may_be_sent_follows_the_batch(served: Served) -> None:
    one, eight = (allowance_of(served.artifact, "cheetah", images) for images in (1, 8))
    assert one.setup_bytes == eight.setup_bytes
    assert one.query_bytes < eight.query_bytes < 8 * one.query_bytes
